"""Which checkpoints of a run are whole.

verl names the last checkpoint in a text file that it empties before it writes, and removes old ones before the new one
is whole. Here a checkpoint counts once the mark ``complete.json`` stands in its folder, written last, with every file
and its size; only then are older ones removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recipe.paravt.lifecycle.log_lines import OURS
from recipe.paravt.lifecycle.run_files import write_atomically

MARK = "complete.json"


@dataclass(frozen=True)
class Checkpoint:
    """One folder ``global_step_N``.

    Attributes:
        fault: why it cannot be used; none for a whole one.
    """

    step: int
    folder: Path
    fault: str | None


def mark_complete(folder: Path) -> None:
    """Says that everything in ``folder`` has been written; first has the machine bring it to the disk."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MARK:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            sizes[str(path.relative_to(folder))] = path.stat().st_size
    write_atomically(folder / MARK, [json.dumps({"files": sizes})])


def _fault(folder: Path) -> str | None:
    try:
        sizes = dict(json.loads((folder / MARK).read_text(encoding="utf-8"))["files"])
    except FileNotFoundError:
        return "the run ended while it was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MARK} cannot be read: {error}"
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, not {size}"
    return None


def checkpoints(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a run's ``checkpoints`` folder, by step."""
    found = []
    for path in folder.glob("global_step_*") if folder.is_dir() else ():
        if (number := re.fullmatch(r"global_step_(\d+)", path.name)) and path.is_dir():
            found.append(Checkpoint(int(number[1]), path, _fault(path)))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def last_whole(folder: Path) -> Checkpoint | None:
    """The checkpoint to go on from."""
    return max((found for found in checkpoints(folder) if not found.fault), key=lambda found: found.step, default=None)


def choose(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint to go on from; says which it is, and which ones are ignored."""
    for found in checkpoints(folder):
        if found.fault:
            say(f"{OURS} ignoring the checkpoint {found.folder}: {found.fault}")
    chosen = last_whole(folder)
    if chosen:
        say(f"{OURS} going on from {chosen.folder}")
    return chosen


def remove_old(folder: Path, keep: int) -> None:
    """Removes all but the last ``keep`` whole checkpoints, and what is not whole before the last one."""
    whole = [found for found in checkpoints(folder) if not found.fault]
    kept = {found.step for found in whole[-keep:]}
    for found in checkpoints(folder):
        if whole and found.step < whole[-1].step and found.step not in kept:
            # What cannot be removed is no reason to end a run.
            with contextlib.suppress(OSError):
                # The mark goes first: half a folder must not look whole.
                (found.folder / MARK).unlink(missing_ok=True)
                shutil.rmtree(found.folder, ignore_errors=True)
