"""Which lines of a run's log somebody has to see: every warning and every error of anyone, once."""

from __future__ import annotations

import re
from collections import Counter

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PROCESS = re.compile(r"\((?P<name>[\w.:-]+ )?(?:pid=\d+|\+)[^)]*\) ?|\((?P<daemon>raylet|gcs_server|autoscaler)\) ?")
"""How Ray and vLLM begin the lines of other processes."""
_RANK = re.compile(r"\[rank\d+\]: ")
"""How torch begins the traceback of a rank."""
_LOGGED = re.compile(r"^(?:[A-Z]+ )?\d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")
"""How vLLM begins every line, also those of a traceback."""
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_LEVEL = re.compile(r"\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
"""Of Python's loggers, wherever their format has it."""
_GLOG = re.compile(r"^\[?(?:[WEF]\d{4} |\d{4}-\d\d-\d\d [\d:,.]+ [WEF] )")
"""Ray's and torch's C++: ``[2026-12-06 21:00:00,123 E 17 17] …``, ``[W1206 21:00:00 …``."""
_PYTHON_WARNING = re.compile(r"^\S*\.py:\d+: (\w*Warning: .*)")
_NAMED = re.compile(r"^(?:\w+\.)*\w*(?:[Ee]rror|[Ww]arning|Exception|Interrupt|Exit)(?:\(\w+\))?(?:: |:?$)")
"""The last line of a traceback, and what writes ``error: …``."""
_OF_C = re.compile(r"^(?:Fatal Python error|terminate called|CUDA error|Segmentation fault)")
_IS_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|[Ee]rror\b|Exception\b|^\[?[EF]\d{4} | [EF] \d|^terminate called")
_TRACEBACK = "Traceback (most recent call last):"
_LEVEL_COLUMNS = 60
"""A level that stands further right is a word of the message."""

OURS = "[paravt]"
"""How lines begin that the recipe's own processes print for somebody to read."""


class LogFilter:
    """Picks lines out of a log, in its order.

    Args:
        max_lines: after so many errors, and after so many warnings, no more are picked, only counted; lines of ours
            always are.

    Attributes:
        num_left_out: lines over ``max_lines``.
    """

    def __init__(self, max_lines: int):
        self._max_lines = max_lines
        self._seen: set[str] = set()
        self._in_traceback: set[str] = set()
        self._num_picked: Counter[bool] = Counter()
        self.num_left_out = 0

    def pick(self, line: str) -> str | None:
        """What to show of a line; none where it is neither a warning nor an error, or was there before.

        Of a traceback, the line that names the exception. Lines of others that differ in numbers, paths and quotes only
        are the same.
        """
        text, process = _split(line)
        body = _LOGGED.sub("", text)
        if body.startswith(_TRACEBACK):
            self._in_traceback.add(process)
            return None
        if process in self._in_traceback:
            # The frames are indented, and an exception group draws its own with | and +.
            if not body.strip() or body[0] in " |+":
                return None
            self._in_traceback.discard(process)
        elif not _is_worth(text):
            return None
        warning = _PYTHON_WARNING.match(text)
        text = warning[1] if warning else text
        if not self.is_new(text):
            return None
        if not text.startswith(OURS):
            is_error = bool(_IS_ERROR.search(text))
            if self._num_picked[is_error] >= self._max_lines:
                self.num_left_out += 1
                return None
            self._num_picked[is_error] += 1
        return f"{process}: {text}" if process else text

    def is_new(self, text: str) -> bool:
        """Whether nothing like it was there before; from now on it was."""
        # Ours are few, and which checkpoint or step they name is what they say.
        shape = (
            text
            if text.startswith(OURS)
            else re.sub(r"'[^']*'|\"[^\"]*\"|[^\s:]*/[^\s:]*|0x[0-9a-f]+|[0-9a-f]{16,}|\d+", "#", text.strip())
        )
        if shape in self._seen:
            return False
        self._seen.add(shape)
        return True


def _split(line: str) -> tuple[str, str]:
    """A line without colours, and the process that wrote it."""
    text, process = _COLOUR.sub("", line).rstrip(), ""
    while found := _PROCESS.match(text):
        process = (found["name"] or found["daemon"] or "").strip()
        text = text[found.end() :]
    text = _RANK.sub("", text, count=1) if text.startswith("[rank") else text
    return _REPEATED.sub("", text), process


def _is_worth(text: str) -> bool:
    if text.startswith(OURS) or any(kind.match(text) for kind in (_GLOG, _OF_C, _PYTHON_WARNING, _NAMED)):
        return True
    level = _LEVEL.search(text, 0, _LEVEL_COLUMNS)
    return level is not None and level[0] not in ("DEBUG", "INFO")
