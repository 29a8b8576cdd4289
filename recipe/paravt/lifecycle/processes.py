"""The processes of a run on this machine, and how they ended.

A process belongs to a run when the run's mark stands in the environment it was started with: that holds for Ray's
daemons, for its workers and for what vLLM starts from them, also on a cluster that was there before, and also when
the parents are dead. So does what such a process has started, where the mark is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from recipe.paravt.lifecycle.run_marker import RUN_VARIABLE

NEEDED = ("VLLM::", "raylet", "gcs_server")
"""How the names begin of the processes that are no Ray actors and that a run cannot do without."""

_RESOURCE_TRACKER = "multiprocessing.resource_tracker"


@dataclass
class RunProcess:
    """One process of a run.

    Attributes:
        name: what it calls itself (``ray::AgentLoopWorkerTQ``, ``VLLM::EngineCore``, ``raylet``).
        stopped_seconds: for how long it has been stopped (SIGSTOP), as far as was looked.
    """

    process: psutil.Process
    name: str
    command: str
    descriptor: int | None
    stopped_seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} (process {self.process.pid})"

    def kill(self) -> None:
        with contextlib.suppress(psutil.Error):
            self.process.kill()

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


@dataclass(frozen=True)
class _End:
    """How a process ended.

    Attributes:
        look: the number of the look that found it gone.
    """

    code: int | None
    words: str
    create_time: float
    look: int


class RunProcesses:
    """The processes of one run on this machine.

    Args:
        run_id: the run's mark.
        apart: pids that are not counted though they carry the mark.
        needed: pids that the run cannot do without, beside those that ``NEEDED`` names.
    """

    def __init__(self, run_id: str, *, apart: Iterable[int] = (), needed: Iterable[int] = ()):
        self._mark = f"{RUN_VARIABLE}={run_id}".encode()
        self._apart = {os.getpid(), *apart}
        self._needed = set(needed)
        self._processes: dict[int, RunProcess] = {}
        self._ends: dict[int, _End] = {}
        self._num_looks = 0
        self._oom_kills = _oom_kills()

    def look(self, elapsed_seconds: float = 0.0) -> list[RunProcess]:
        """The living ones, as they are now.

        Args:
            elapsed_seconds: since the last look. Looks are counted and not a clock, which would go on while the
                machine sleeps.
        """
        self._num_looks += 1
        for pid in psutil.pids():
            if pid not in self._processes and pid not in self._apart:
                self._add(pid)
        for pid, known in list(self._processes.items()):
            try:
                # A pid that was given to another process is not running in psutil's sense.
                status = known.process.status() if known.process.is_running() else psutil.STATUS_DEAD
            except psutil.Error:
                status = psutil.STATUS_DEAD
            if status in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE):
                code = exit_code(pid, known.descriptor)
                self._ends[pid] = _End(
                    code, f"{known} {self._describe(code)}", known.process.create_time(), self._num_looks
                )
                known.close()
                del self._processes[pid]
                continue
            known.stopped_seconds = known.stopped_seconds + elapsed_seconds if status == psutil.STATUS_STOPPED else 0.0
            with contextlib.suppress(psutil.Error):
                known.name, known.command = _names(known.process)
            if known.name.startswith(NEEDED):
                self._needed.add(pid)
        return list(self._processes.values())

    def trouble(self, stopped_seconds: float) -> str | None:
        """What the last look saw: a needed process that is gone, or one that is stopped for too long."""
        gone = [self._ends[pid] for pid in self._needed if pid in self._ends]
        if gone:
            # One death brings others with it, of processes that the first one started: the oldest one was first.
            first_look = min(end.look for end in gone) - 1
            killed = [end for end in self._ends.values() if end.look >= first_look and (end.code or 0) < 0]
            return min(gone + killed, key=lambda end: end.create_time).words
        for known in self._processes.values():
            if known.stopped_seconds > stopped_seconds:
                return f"{known} was stopped and does not answer"
        return None

    def killed(self, pid: int) -> str | None:
        """Which process of the run a signal has killed, and which signal, in words; none where that is not known."""
        end = self._ends.get(pid)
        return end.words if end is not None and end.code is not None and end.code < 0 else None

    def has_stopped(self) -> bool:
        """Whether the last look saw a stopped process."""
        return any(known.stopped_seconds for known in self._processes.values())

    def kill(self, *, resource_trackers: bool) -> None:
        """Kills the living ones.

        Args:
            resource_trackers: also Python's resource trackers, which remove the shared memory of the processes that
                they outlive, and then end by themselves.
        """
        for known in self.look():
            if resource_trackers or _RESOURCE_TRACKER not in known.command:
                known.kill()

    def _add(self, pid: int) -> None:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            process = psutil.Process(pid)
            # Ray's agents write their title over their environment: they are known by their parent, the raylet.
            if self._mark not in environment and process.ppid() not in self._processes:
                return
            name, command = _names(process)
        except (OSError, psutil.Error):
            return
        self._ends.pop(pid, None)
        self._processes[pid] = RunProcess(process, name, command, _open_descriptor(pid))

    def _describe(self, code: int | None) -> str:
        if code is None:
            return "is gone"
        words = describe_exit(code)
        killed = _oom_kills() - self._oom_kills
        if code == -signal.SIGKILL and killed > 0:
            words += f" (out of memory: the kernel has killed {killed} processes since the run began)"
        return words


def _names(process: psutil.Process) -> tuple[str, str]:
    command = " ".join(process.cmdline())
    title = command.split(" ")[0].rsplit("/", 1)[-1]
    if title.startswith("ray::"):
        title = re.split(r"[.(]", title)[0]
    elif title.startswith("python") and (script := re.search(r"-m (\S+)|(\S+)\.py\b", command)):
        title = (script[1] or script[2]).rsplit("/", 1)[-1]
    return title, command


def _open_descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def describe_exit(code: int) -> str:
    """An exit code as ``subprocess`` gives them, in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    words = f"was killed by {signal.Signals(-code).name}"
    if -code == signal.SIGBUS:
        words += " (the file system behind a memory map is full, often /dev/shm)"
    return words


def exit_code(pid: int, descriptor: int | None) -> int | None:
    """How a process ended that need not be a child: its exit status, negative for a signal; none if unknown.

    Args:
        descriptor: its pidfd, opened while it lived. Linux tells the status of a process that is gone from 6.15 on
            (``PIDFD_GET_INFO`` of linux/pidfd.h), that of one nobody has waited for also before.
    """
    size, exited, exit_code_at = 64, 1 << 3, 60
    if descriptor is not None:
        info = bytearray(struct.pack("Q", exited).ljust(size, b"\0"))
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, (3 << 30) | (size << 16) | (0xFF << 8) | 11, info)
            if struct.unpack_from("Q", info)[0] & exited:
                return os.waitstatus_to_exitcode(struct.unpack_from("i", info, exit_code_at)[0])
    with contextlib.suppress(OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        if fields[0] == "Z":
            return os.waitstatus_to_exitcode(int(fields[-1]))
    return None


def _oom_kills() -> int:
    """Processes that the kernel has killed for lack of memory since the machine started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
