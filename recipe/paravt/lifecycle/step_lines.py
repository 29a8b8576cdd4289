"""Shows the steps of a run on the console as they are done, from what the trainer writes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from recipe.paravt.lifecycle.console import Console
from recipe.paravt.lifecycle.log_lines import OURS
from recipe.paravt.lifecycle.progress import Progress
from recipe.paravt.lifecycle.run_files import MetricsFile
from recipe.paravt.lifecycle.summary import step_line, validation_line

_WINDOW = 10
"""Steps that the time left is reckoned from: the first ones are slower, and checkpoints come every few."""


class StepLines:
    """Follows ``metrics.jsonl``.

    Args:
        metrics: the file; lines that are in it now are of a run before this one.
        progress: where the run is.
    """

    def __init__(self, metrics: Path, progress: Callable[[], Progress], console: Console):
        self._metrics = metrics
        self._progress = progress
        self._console = console
        self._old = {line["step"]: line for line in MetricsFile.read(metrics)}
        self._state = self._read_state()
        self._shown: set[int] = set()
        self._validated: set[int] = set()
        self._started = time.monotonic()
        self._last_end: float | None = None
        self._seconds: deque[float] = deque(maxlen=_WINDOW)

    def look(self) -> None:
        """Shows what was done since the last look."""
        now = self._progress()
        if now.step and self._last_end is None:
            self._last_end = time.monotonic()
            seconds = self._last_end - self._started
            self._console.say(f"{OURS} step {now.step} of {now.num_steps} begins, {seconds:.0f} s after the start")
        state = self._read_state()
        if state == self._state:
            return
        self._state = state
        for line in MetricsFile.read(self._metrics):
            step = line["step"]
            # What an interrupted run did after its last checkpoint stands there until this one's trainer starts.
            if self._old.get(step) == line:
                continue
            # A line is written again where the step is saved before it is validated.
            if step not in self._shown:
                self._shown.add(step)
                self._console.advance(step, now.num_steps, step_line(line, self._seconds_left(now.num_steps - step)))
            if step not in self._validated and (accuracies := validation_line(line)):
                self._validated.add(step)
                self._console.say(f"{OURS} step {step} validated  accuracy {accuracies}")

    def _seconds_left(self, num_steps: int) -> float | None:
        """Called when a step has ended."""
        if self._last_end is None:
            return None
        self._seconds.append(time.monotonic() - self._last_end)
        self._last_end = time.monotonic()
        return fmean(self._seconds) * max(0, num_steps)

    def _read_state(self) -> tuple[int, int, int] | None:
        try:
            stat = self._metrics.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
