"""What a run puts on a machine outside its output folder: a temporary folder, shared memory, sockets.

All of it carries the run's id, so that two runs on one machine never meet and whatever is left by a run that was
killed can be told from everybody else's.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "paravt-"
_RUN_ID = "[0-9a-f]{12}"
_LOCK = "owner.lock"

_LONGEST_BASE = 19
"""Characters. A Unix socket's path has 107 at most, and Ray puts 68 of its own behind ours, which has 20."""


def new_run_id() -> str:
    """An id that no other run on the machine has."""
    return secrets.token_hex(6)


def environment(run_id: str) -> dict[str, str]:
    """The variables that give every process of a run the run's own temporary folder.

    For Ray's session (of a local cluster), vLLM's sockets and verl's locks.
    """
    # Absolute: Ray's processes and the guard have other working directories.
    base = os.path.abspath(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    folder = Path(base if len(base) <= _LONGEST_BASE else "/tmp", _PREFIX + run_id)
    return {"TMPDIR": str(folder), "RAY_TMPDIR": str(folder)}


def folder_of(run_id: str) -> Path | None:
    """The run's temporary folder, from this process's environment; none where no driver has given it one."""
    folder = Path(os.environ.get("TMPDIR", ""))
    return folder if folder.name == _PREFIX + run_id else None


def own(folder: Path) -> IO[str] | None:
    """Makes a run's temporary folder and says by a lock, held while the file is open, that somebody looks after it.

    Returns:
        The open lock file, or none where another process already holds it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        # What torch has compiled serves the next run: it stays where it would be without a folder of the run's own.
        compiled = folder.parent / f"torchinductor_{getpass.getuser()}"
        compiled.mkdir(exist_ok=True)
        (folder / compiled.name).symlink_to(compiled)
    fresh = folder / f".{os.getpid()}.lock"
    try:
        # Locked before it has its name: nobody can find a lock file that is there and not held yet.
        file = fresh.open("w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            os.link(fresh, folder / _LOCK)
        except FileExistsError:
            file.close()
            file = (folder / _LOCK).open("r+", encoding="utf-8")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except BlockingIOError:
        file.close()
        return None
    finally:
        fresh.unlink()


def name_shared_memory(run_id: str) -> None:
    """Makes Python name the shared memory and the semaphores of this process, and of those it starts, after the run.

    vLLM's message queues take the names that Python draws (``psm_…``, ``sem.mp-…``), and are left in ``/dev/shm`` when
    their process is killed. Both places are private; Python has no other way.
    """
    from multiprocessing import process, shared_memory

    process.current_process()._config["semprefix"] = f"/{_PREFIX}{run_id}"  # type: ignore[attr-defined]

    shared_memory._make_filename = lambda: f"/{shared_memory_prefix(run_id)}{secrets.token_hex(4)}"  # type: ignore[attr-defined]


def shared_memory_prefix(run_id: str) -> str:
    """How the names of the run's segments begin, in ``/dev/shm``."""
    return f"{_PREFIX}{run_id}-"


def of_run(run_id: str, folder: Path) -> list[Path]:
    """Everything that is there of a run: its temporary folder, shared memory, sockets.

    Args:
        folder: its temporary folder.

    Raises:
        ValueError: this is no run's id; what a pattern with it finds could be anybody's.
    """
    if not re.fullmatch(_RUN_ID, run_id):
        raise ValueError(f"{run_id!r} is no run's id")
    own_memory = shared_memory_prefix(run_id)
    return sorted(
        [
            *folder.parent.glob(folder.name),
            *SHARED_MEMORY.glob(f"{own_memory}*"),
            *SHARED_MEMORY.glob(f"sem.{own_memory}*"),
            *Path("/tmp").glob(f"rl-colocate-zmq-{run_id}-*"),  # verl's sockets for weights do not follow TMPDIR
        ]
    )


def sweep(run_id: str, folder: Path) -> None:
    """Removes everything that is left of a run; its processes must be gone."""
    for path in of_run(run_id, folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def dead_runs(base: Path) -> Iterator[tuple[str, Path]]:
    """This user's runs that nobody looks after any more, because all their processes were killed at once.

    Args:
        base: the folder that the runs' temporary folders are in.

    Returns:
        Ids and temporary folders.
    """
    for folder in base.glob(f"{_PREFIX}*"):
        run_id = folder.name.removeprefix(_PREFIX)
        with contextlib.suppress(OSError):
            is_a_runs = re.fullmatch(_RUN_ID, run_id) and (folder / _LOCK).is_file()
            if not is_a_runs or folder.stat().st_uid != os.getuid():
                continue
            lock = own(folder)
            if lock is not None:
                lock.close()
                yield run_id, folder
