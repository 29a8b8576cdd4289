"""Outlives a run and leaves nothing of it behind: ``python -m recipe.paravt.lifecycle.guard …``.

The driver can be killed like any other process, and then nobody is left who knows what belonged to the run. So each
machine of a run has this small process in a session of its own, which signals to the run do not reach. When the
driver is gone, or has said that it is about to end, it ends what is left of the run and removes its temporary folder,
shared memory and sockets. On machines without the driver it also does what the driver's watch does there: it ends the
run's processes on its machine when one that they need dies or is stopped, which the driver then sees in Ray's table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from recipe.paravt.lifecycle import leftovers
from recipe.paravt.lifecycle.processes import RunProcesses, describe_exit, exit_code
from recipe.paravt.lifecycle.run_marker import in_our_run, run_id
from recipe.paravt.lifecycle.summary import end_of_run

_POLL_SECONDS = 3.0
_STOPPED_SECONDS = 45.0
"""Longer than the driver's own watch waits, which says more."""
_LEAVE_SECONDS = 5.0
"""For processes that end by themselves once the driver is gone, as Python's resource trackers do."""
_ENDED, _FAILED = "ended", "failed"
"""A file in the run's temporary folder, and what is in it after a failure."""


class Guard:
    """The driver's end: starts the guard of this machine, and has it clean up.

    Args:
        output_dir: of the run; Ray's logs are kept there when it fails.
        checkpoint_dir: of the run.
        keep_open: the lock on the output folder: nobody else may have it before the guard has cleaned up.
        stderr: where the guard says what ended the run; none: this process's.
    """

    def __init__(self, output_dir: str, checkpoint_dir: str, keep_open: IO[str], stderr: IO[str] | None = None):
        folder = leftovers.folder_of(run_id())
        lock = leftovers.own(folder) if folder else None
        if folder is None or lock is None:
            raise RuntimeError(f"{folder or 'TMPDIR'} is not this run's own temporary folder")
        self.folder = folder
        with lock:
            run = {"output_dir": output_dir, "checkpoint_dir": checkpoint_dir, "command": own_command()}
            self._process = subprocess.Popen(
                _command("--driver", str(os.getpid()), "--run", json.dumps(run)),
                pass_fds=[lock.fileno(), keep_open.fileno()],
                start_new_session=True,
                stderr=stderr,
                cwd="/",
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wake(self) -> bool:
        """Lets the guard go on, should somebody have stopped it; false where it is gone."""
        self._process.send_signal(signal.SIGCONT)
        return self._process.poll() is None

    def close(self, failed: bool) -> None:
        """Ends what is left of the run and removes what it left; returns when that is done."""
        if not self.wake():
            clean_up(run_id(), self.folder)
            return
        # Renamed into place: the guard must not read it empty.
        draft = self.folder / f".{_ENDED}"
        draft.write_text(_FAILED if failed else "", encoding="utf-8")
        draft.rename(self.folder / _ENDED)
        self._process.wait()


def guard_this_machine() -> None:
    """Starts the guard of a machine on which the driver does not run.

    Does nothing where one is there already, and in a process that belongs to no run with a driver.
    """
    folder = leftovers.folder_of(run_id())
    lock = leftovers.own(folder) if folder else None
    if lock is None:
        return
    with lock:
        # Forked off: Ray ends the children of a worker that ends.
        subprocess.run(["setsid", "--fork", *_command()], pass_fds=[lock.fileno()], cwd="/", check=True)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "recipe.paravt.lifecycle.guard", *arguments]


def own_command() -> list[str]:
    """The command that started this process."""
    return [sys.executable, *sys.orig_argv[1:]]


def _without_driver(processes: RunProcesses) -> str | None:
    """Waits until the run has left this machine; what went wrong here, if something did."""
    last_seen = time.monotonic()
    while time.monotonic() - last_seen < 2 * _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        if processes.look(_POLL_SECONDS):
            last_seen = time.monotonic()
        if trouble := processes.trouble(_STOPPED_SECONDS):
            return trouble
    return None


def _with_driver(processes: RunProcesses, pid: int, folder: Path) -> tuple[bool, str | None]:
    """Waits for the end of the driver, or for its word that it ends.

    Returns:
        Whether the run failed; and what killed the driver, where it could not say so itself.
    """
    name = f"the driver (process {pid})"
    try:
        driver = psutil.Process(pid)
        descriptor = os.pidfd_open(pid)
    except (psutil.Error, OSError):
        return True, f"{name} is gone"
    stopped_seconds = 0.0
    while not (folder / _ENDED).exists():
        if select.select([descriptor], [], [], _POLL_SECONDS)[0]:
            time.sleep(0.1)  # until its parent has taken note, the kernel does not tell
            code = exit_code(pid, descriptor)
            if code is None:
                return True, f"{name} is gone"
            return code != 0, f"{name} {describe_exit(code)}" if code < 0 else None
        with contextlib.suppress(psutil.Error):
            stopped = driver.status() == psutil.STATUS_STOPPED
            processes.look(_POLL_SECONDS)
            # Where others are stopped too, somebody has suspended the run.
            stopped_seconds = stopped_seconds + _POLL_SECONDS if stopped and not processes.has_stopped() else 0.0
            if stopped_seconds > _STOPPED_SECONDS:
                driver.kill()
                return True, f"{name} was stopped and does not answer"
    return (folder / _ENDED).read_text(encoding="utf-8") == _FAILED, None


def clean_up(run_id: str, folder: Path, processes: RunProcesses | None = None) -> None:
    """Ends a run's processes on this machine and removes what they left.

    Args:
        folder: the run's temporary folder.
    """
    processes = processes or RunProcesses(run_id)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while processes.look() and time.monotonic() < deadline:
        time.sleep(0.2)
    for resource_trackers in (False, True):
        deadline = time.monotonic() + _LEAVE_SECONDS
        while processes.look() and time.monotonic() < deadline:
            processes.kill(resource_trackers=resource_trackers)
            time.sleep(0.2)
    leftovers.sweep(run_id, folder)


def _keep_logs(folder: Path, output_dir: str) -> None:
    """Ray's logs, which say more than the run's own output, would go with its temporary folder."""
    for session in (folder / "ray").glob("session_*/logs"):
        if not session.parent.is_symlink():
            with contextlib.suppress(OSError):
                shutil.copytree(session, Path(output_dir) / "ray_logs" / run_id(), dirs_exist_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Guards this machine until the run has ended, then cleans up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", type=int, help="its pid, where it runs on this machine")
    parser.add_argument("--run", type=json.loads, help="arguments of end_of_run, as JSON")
    options = parser.parse_args(arguments)
    folder = leftovers.folder_of(run_id()) if in_our_run() else None
    if folder is None:
        parser.error("this is no process of a run: recipe.paravt.main starts it")
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    for dead_id, dead_folder in leftovers.dead_runs(folder.parent):
        clean_up(dead_id, dead_folder)
    processes = RunProcesses(run_id(), apart=[options.driver] if options.driver else [])
    if options.driver is None:
        failed, trouble = False, _without_driver(processes)
    else:
        failed, trouble = _with_driver(processes, options.driver, folder)
    if trouble:
        how_to_go_on = end_of_run(**options.run) if options.run else "the run ends on this machine"
        print(f"error: {trouble}\n{how_to_go_on}", file=sys.stderr, flush=True)
    if failed and options.run:
        _keep_logs(folder, options.run["output_dir"])
    clean_up(run_id(), folder, processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
