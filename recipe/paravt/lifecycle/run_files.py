"""The files that a run leaves in its output folder: ``metrics.jsonl`` and ``rollouts/<step>.jsonl``."""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def lock_folder(folder: Path, wait_seconds: float = 60.0) -> IO[str]:
    """Takes a run's output folder for this process and those that it hands the file to.

    Args:
        wait_seconds: a run that has just been killed is being cleaned up for some seconds.

    Returns:
        The lock, held until the last process that has it closes it or dies.

    Raises:
        BlockingIOError: another run has it, with that run's machine and process.
    """
    file = (folder / ".lock").open("a+", encoding="utf-8")
    deadline = time.monotonic() + wait_seconds
    has_waited = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            if time.monotonic() > deadline:
                file.close()
                raise BlockingIOError(f"{folder} is in use by another run ({owner})") from None
            if not has_waited:
                print(
                    f"[paravt] {folder} is in use by another run ({owner}); waiting for up to {wait_seconds:g} s",
                    file=sys.stderr,
                )
            has_waited = True
            time.sleep(0.5)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()
    return file


def _as_json(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    # JSON has no NaN; a reader should not need Python's dialect.
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricsFile:
    """``metrics.jsonl``: one object a step, ``step`` first, in the order of the steps.

    verl's own ``file`` logger empties its file when a run is resumed; this one goes on.

    Args:
        path: the file; may exist from an interrupted run.
        last_step: the step of the checkpoint that the run goes on from (0 for a new run). Lines after it are
            dropped: these steps are done again. A last line that an interruption cut is dropped too.
    """

    def __init__(self, path: Path, last_step: int):
        self._path = path
        self._last_put: int | None = None
        write_atomically(path, [json.dumps(line) for line in self.read(path) if line["step"] <= last_step])

    def put(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds the line of a step, or writes it again: in the place of one that was put before for the same step."""
        line = json.dumps({"step": step, **{name: _as_json(value) for name, value in metrics.items()}})
        if step == self._last_put:
            write_atomically(self._path, [*self._path.read_text(encoding="utf-8").splitlines()[:-1], line])
            return
        self._last_put = step
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The lines of a metrics file that are whole; none where there is no file."""
        if not path.exists():
            return []
        lines = []
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                lines.append(line)
        return lines


def write_rollouts(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes the rollouts of a step, the groups together."""
    ordered = sorted(records, key=lambda record: record["group"])
    write_atomically(path, (json.dumps(record, ensure_ascii=False) for record in ordered))
