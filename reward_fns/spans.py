"""Temporal grounding: the spans that an answer names, and their overlap with the true ones."""

from __future__ import annotations

import math
import re

from reward_fns.choice import MAX_ANSWER_CHARS

Seconds = tuple[float, float]
"""Half-open span, start and end in seconds."""

_UNIT = r"(?:hours?|hrs?|h|minutes?|mins?|min|m|seconds?|secs?|sec|s|%|percent)(?![a-z])"
_NUMBER = r"\d+(?:\.\d+)?(?!\.?\d)"
_CLOCK = r"(?:\d+:\d{1,2}:\d{1,2}(?:[.,]\d{3}(?!\d)|\.\d+)?|\d+:\d{1,2}(?:\.\d+)?)(?!\d)"
_TIME = rf"(?:{_CLOCK}|{_NUMBER}(?:\s?{_UNIT})?(?:\s?\d+(?:\.\d+)?\s?{_UNIT})*)"
_END_WORD = (
    r"(?:and )?(?:it )?[\"']?(?:ends?|ending|end[_ ]time|end_seconds|stops?|finish(?:es)?|lasts?)"
    r"(?: (?:at|time|until))?[\"']?\s?[:=]?\s?"
)
_LINK = rf"\s?(?:,|;|-{{1,2}}>?|~|\.\.\.?|→|to\b|until\b|till\b|through\b|and\b(?! (?:it|ends?)\b))?\s?(?:{_END_WORD})?"
_PAIR = re.compile(rf"(?<![\d.:])({_TIME}){_LINK}({_TIME})(?![\d:])", re.IGNORECASE)
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s?({_UNIT})?", re.IGNORECASE)
_DASHES = str.maketrans({dash: "-" for dash in "‐‑‒–—―−"} | {"～": "~", "：": ":", "，": ",", "％": "%"})
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def temporal_iou(prediction: str, ground_truth: str, duration_seconds: float | None = None) -> float:
    """Intersection over union of the spans that two texts name, in [0, 1].

    Reads ``[12.3, 45.6]``, ``12.3 - 45.6``, ``from 12.3 to 45.6 seconds``, ``00:12, 00:45``, ``1 min 5 s``,
    per cent of the duration, and several spans (the unions are compared). A span whose end is not after its start is
    none, and a text without a span scores 0.

    Args:
        duration_seconds: length of the video; per cent mean nothing without it.

    >>> round(temporal_iou("[0, 10]", "from 5 to 15 seconds"), 4)
    0.3333
    """
    predicted = _union(parse_spans(prediction, duration_seconds))
    truth = _union(parse_spans(ground_truth, duration_seconds))
    if not predicted or not truth:
        return 0.0
    shared = _overlap(predicted, truth)
    total = _length(predicted) + _length(truth) - shared
    return min(1.0, shared / total) if 0 < total < math.inf else 0.0


def parse_spans(text: str, duration_seconds: float | None = None) -> list[Seconds]:
    """The spans that a text names, in its order.

    >>> parse_spans("1:05 to 1:10, then 10-20 %", duration_seconds=50)
    [(65.0, 70.0), (5.0, 10.0)]
    """
    # Runs of white space are folded, so that no pattern goes back over them.
    text = " ".join(text[:MAX_ANSWER_CHARS].translate(_DASHES).split())
    spans = []
    for match in _PAIR.finditer(text):
        before = text[max(0, match.start() - 4) : match.start()].rstrip()
        if before.endswith("-") and not before[:-1].rstrip().endswith(tuple("0123456789")):
            continue  # a negative start
        start, end = _seconds(match[1], match[2], duration_seconds), _seconds(match[2], None, duration_seconds)
        if start is not None and end is not None and start < end < math.inf:
            spans.append((start, end))
    return spans


def _seconds(text: str, following: str | None, duration_seconds: float | None) -> float | None:
    """Seconds of one time; a number without a unit takes that of the time after it (``10 - 20 %``)."""
    if ":" in text:
        total = 0.0
        for part in text.replace(",", ".").split(":"):
            total = total * 60 + float(part)
        return total
    total = 0.0
    for number, unit in _PART.findall(text):
        if not unit and following and ":" not in following:
            units = [u for _, u in _PART.findall(following) if u]
            unit = units[0] if len(units) == 1 else ""
        unit = unit.lower()
        if unit.startswith(("%", "percent")):
            if duration_seconds is None:
                return None
            total += float(number) / 100 * duration_seconds
        else:
            total += float(number) * _SECONDS[unit[:1] or "s"]
    return total


def _union(spans: list[Seconds]) -> list[Seconds]:
    merged: list[Seconds] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(spans: list[Seconds]) -> float:
    return sum(end - start for start, end in spans)


def _overlap(first: list[Seconds], second: list[Seconds]) -> float:
    """Length of the intersection of two lists of disjoint, sorted spans."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total
