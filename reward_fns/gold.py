"""Whether a row's own reference answer would earn the top accuracy: to be asked before any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reward_fns.choice import mcq_accuracy
from reward_fns.score import QUESTION_TYPES, accuracy
from reward_fns.spans import parse_spans


def check_gold(row: Mapping[str, Any]) -> list[str]:
    """Why a row's own answer would not earn an accuracy of 1; empty where it would.

    Args:
        row: an annotation with ``question_type, answer`` and optionally ``options, duration_seconds``, or a row of
            a training parquet, which holds them under ``extra_info``.

    >>> check_gold({"question_type": "mcq", "answer": "E", "options": ["red", "blue"]})
    ["the answer 'E' is none of ['red', 'blue']"]
    """
    facts: Mapping[str, Any] = row.get("extra_info") or row
    answer, options = facts.get("answer"), facts.get("options")
    duration_seconds = facts.get("duration_seconds")
    options = list(options) if options is not None else []
    question_type = facts.get("question_type") or ("mcq" if options else "oe")
    if question_type not in QUESTION_TYPES:
        return [f"the question type {question_type!r} is none of {', '.join(QUESTION_TYPES)}"]
    if answer is None or not str(answer).strip():
        return ["there is no answer"]
    text = str(answer)
    reasons = []
    if question_type == "mcq":
        reasons = _check_choice(text, options)
    elif question_type == "tvg":
        reasons = _check_spans(text, duration_seconds)
    if not reasons:
        score = accuracy(text, text, question_type=question_type, options=options, duration_seconds=duration_seconds)
        if score < 1.0:
            reasons = [f"the answer {text!r} scores {score:g} against itself"]
    return reasons


def _check_choice(answer: str, options: Sequence[str]) -> list[str]:
    if not options:
        return []
    letters = [chr(ord("A") + index) for index in range(len(options))]
    right = [letter for letter in letters if mcq_accuracy(letter, answer, options) == 1.0]
    if not right:
        return [f"the answer {answer!r} is none of {list(options)}"]
    if len(right) > 1:
        return [f"the answer {answer!r} may be any of {', '.join(right)}"]
    return []


def _check_spans(answer: str, duration_seconds: float | None) -> list[str]:
    spans = parse_spans(answer, duration_seconds)
    if not spans:
        return [f"the answer {answer!r} names no span"]
    if duration_seconds is not None:
        late = [span for span in spans if span[0] >= duration_seconds]
        if late:
            return [f"the span {list(late[0])} starts after the end of the video at {duration_seconds:g} s"]
    return []
