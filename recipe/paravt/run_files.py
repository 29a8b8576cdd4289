"""The files that a run leaves in its output folder: ``metrics.jsonl`` and ``rollouts/<step>.jsonl``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def write_atomically(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


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
        kept = [line for line in self.read(path) if line["step"] <= last_step]
        write_atomically(path, map(json.dumps, kept))

    def append(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds the line of a step."""
        line = {"step": step, **{name: _as_json(value) for name, value in metrics.items()}}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The lines of a metrics file that are whole; none where there is no file."""
        if not path.exists():
            return []
        lines = []
        for text in path.read_text(encoding="utf-8").splitlines():
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
