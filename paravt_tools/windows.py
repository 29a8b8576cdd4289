"""The window of a crop call: what a model writes, as seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paravt_tools.errors import ToolArgumentError

_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_PLAIN = re.compile(rf"[+-]?(?:{_NUMBER})(?:e[+-]?\d{{1,4}})?")
_CLOCK = re.compile(r"(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d*)?)")
_UNITS = re.compile(
    rf"(?:({_NUMBER})\s*h(?:ours?|rs?)?)?\s*"
    rf"(?:({_NUMBER})\s*m(?:in(?:ute)?s?)?)?\s*"
    rf"(?:({_NUMBER})\s*s(?:ec(?:ond)?s?)?)?"
)
_LEGAL = 'seconds as a number (12.5), or a time as text ("01:30", "0:01:30", "90s", "1m30s")'

MAX_TIME_CHARS = 64
"""Longest text that is looked at as a time. Chosen here: no legal time comes near it."""

_MAX_SHOWN_CHARS = 60
"""How much of a bad value is repeated to the model. Chosen here: enough to see which one it was."""


@dataclass(frozen=True)
class CropWindow:
    """A part of a video: from ``start_seconds`` up to but not including ``end_seconds``.

    Attributes:
        start_seconds: finite, at least 0.
        end_seconds: finite, above ``start_seconds``.
    """

    start_seconds: float
    end_seconds: float

    def __post_init__(self) -> None:
        start, end = self.start_seconds, self.end_seconds
        if not (math.isfinite(start) and math.isfinite(end) and 0 <= start < end):
            raise ToolArgumentError(f"the window is {start} to {end} seconds; it must be finite, 0 <= start < end")

    def num_frames(self, fps: float, max_frames: int) -> int:
        """Frames to show of the window: ``fps`` a second, at least one, at most ``max_frames``."""
        return max(1, min(max_frames, math.ceil((self.end_seconds - self.start_seconds) * fps)))

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any], duration_seconds: float) -> CropWindow:
        """The window that the arguments of a ``crop_video`` call name.

        ``start_time`` and ``end_time`` (or ``start`` and ``end``) are seconds as numbers or text, clock times
        (``MM:SS``, ``HH:MM:SS``, with decimals) or times with units (``5s``, ``1.5 min``, ``1m30s``). An end
        past the video is clamped to it. Other arguments are ignored.

        Args:
            duration_seconds: end of the video; finite and above 0.

        Raises:
            ToolArgumentError: with a text for the model: what was given, what is legal, and the duration.
            ValueError: ``duration_seconds`` is no duration (a fault of the caller, not of the model).
        """
        if not (math.isfinite(duration_seconds) and duration_seconds > 0):
            raise ValueError(f"duration_seconds is {duration_seconds}; it must be finite and above 0")
        lasts = f"the video lasts {duration_seconds:.2f} seconds"
        if not isinstance(arguments, Mapping):
            raise ToolArgumentError(
                f"the arguments are {_shown(arguments)}; they must be an object with start_time and end_time; " + lasts
            )
        start = _seconds(arguments, "start_time", "start", lasts)
        end = _seconds(arguments, "end_time", "end", lasts)
        given = f"start_time is {start:.15g} and end_time is {end:.15g} seconds"
        if start < 0:
            raise ToolArgumentError(f"{given}; start_time must be at least 0; {lasts}")
        if start >= duration_seconds:
            raise ToolArgumentError(f"{given}; start_time must be before the end of the video; {lasts}")
        if end <= start:
            raise ToolArgumentError(f"{given}; end_time must be after start_time; {lasts}")
        return cls(start, min(end, float(duration_seconds)))


def _seconds(arguments: Mapping[str, Any], name: str, alias: str, lasts: str) -> float:
    for key in (name, alias):
        # A null beside the alias is a template's empty field, and a null alone is as good as missing.
        if arguments.get(key) is not None:
            value = arguments[key]
            break
    else:
        raise ToolArgumentError(f"{name} is missing; it must be {_LEGAL}; {lasts}")
    seconds = _parsed(value)
    if seconds is None or not math.isfinite(seconds):
        raise ToolArgumentError(f"{key} is {_shown(value)}; it must be {_LEGAL}; {lasts}")
    # A negative zero would show as "-0" to the model.
    return seconds + 0.0


def _parsed(value: Any) -> float | None:
    """The value in seconds, perhaps not finite; none where it is no time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    if not isinstance(value, str) or len(value) > MAX_TIME_CHARS:
        return None
    text = value.strip().lower()
    if not text.isascii():
        # The digits of other scripts match \d, but a mixed number is more likely a slip than a time.
        return None
    if _PLAIN.fullmatch(text):
        return float(text)
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = match.groups()
        if float(seconds) >= 60 or (hours is not None and int(minutes) >= 60):
            return None
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    match = _UNITS.fullmatch(text)
    if match and any(match.groups()):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds
    return None


def _shown(value: Any) -> str:
    """The value for an error text, cut to a length a model can read."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        # Python refuses to write integers of more than 4300 digits.
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, list | tuple | dict | set):
        return f"a {type(value).__name__}"
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
