"""Watches the processes that a run depends on, from the driver, so that none dies in silence.

verl waits for ever for a killed agent-loop worker, and for the receiver of weights. The driver outlives them all, so
it looks, every few seconds and off the training's own threads, at two things that cost a step nothing: Ray's own
table of actors (all nodes), and the processes that the driver started on this machine (vLLM's engines and Ray's
daemons, which are no actors, and processes that were stopped).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_NEEDED = ("VLLM::", "raylet", "gcs_server")
"""How the command lines of the processes begin that are no actors and that a run cannot do without."""

_MEANT = {"RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED"}
"""Reasons of Ray for an actor that somebody ended on purpose."""


@dataclass(frozen=True)
class WatchSettings:
    """Times in seconds, chosen here: a run ends within a minute of the death of a process it needs."""

    poll_seconds: float = 3.0
    # Ray and verl notice most deaths themselves and end with a traceback that says more; they get this long.
    grace_seconds: float = 20.0
    stopped_seconds: float = 30.0


class ProcessWatch:
    """Context manager around a run; ``trouble`` says what died, if anything did.

    When something died and the run does not end by itself, the watch ends it: it prints what died, stops what is left
    of the run on this machine and exits with status 1.

    Args:
        describe_end: what to print after the trouble: how far the run came, how to go on.
    """

    def __init__(self, describe_end: Callable[[], str], settings: WatchSettings | None = None):
        self._describe_end = describe_end
        self._settings = settings or WatchSettings()
        self._processes = _ProcessTable()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-watch", daemon=True)
        self.trouble: str | None = None

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def message(self) -> str:
        """What died and how to go on."""
        return f"{self.trouble}\n{self._describe_end()}"

    def look(self, seconds: float = 5.0) -> None:
        """Looks for some seconds: a run that failed by itself may be faster than the watch, and than Ray's table."""
        deadline = time.monotonic() + seconds
        while not self.trouble and time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # Ray may be gone by now; the run's own error is there to tell
                self.trouble = self._processes.trouble(self._settings, 0.5) or dead_actor()
            time.sleep(0.5)

    def _watch(self) -> None:
        silent = 0
        while not self._left.wait(self._settings.poll_seconds):
            try:
                self.trouble = self._processes.trouble(self._settings, self._settings.poll_seconds) or dead_actor()
                silent = 0
            except Exception as error:
                # Before Ray is up, and when its control process is gone.
                silent += 1
                if silent * self._settings.poll_seconds > self._settings.grace_seconds and self._processes.seen_daemons:
                    self.trouble = f"Ray's control process does not answer: {type(error).__name__}: {error}"
            if self.trouble:
                break
        if self.trouble and not self._left.wait(self._settings.grace_seconds):
            self._end()

    def _end(self) -> None:
        print(f"error: {self.message()}", file=sys.stderr, flush=True)
        # Not ray.shutdown(): with the main thread waiting in Ray, it ended the driver with status 0.
        self._processes.kill_all()
        os._exit(1)


def dead_actor() -> str | None:
    """The first actor of this job that died without being meant to, in words."""
    import ray
    from ray._private import state

    if not ray.is_initialized():
        return None
    job = ray.JobID(bytes.fromhex(ray.get_runtime_context().get_job_id()))
    for actor in state.actors(job_id=job, actor_state_name="DEAD").values():
        cause = actor["DeathCause"]
        died = cause.actor_died_error_context
        reason = type(died).Reason.Name(died.reason)
        if cause.HasField("oom_context"):
            return f"{_name(actor)} was killed: out of memory. {cause.oom_context.error_message}"
        if cause.HasField("actor_died_error_context") and reason not in _MEANT:
            first_line = " ".join(died.error_message.split())[:200]
            return f"{_name(actor)} died ({reason}): {first_line}"
    return None


def _name(actor: dict[str, Any]) -> str:
    return f"{actor['ActorClassName']} (process {actor['Pid']} on {actor['Address']['IPAddress']})"


def end_of_run(output_dir: str) -> str:
    """How far a run came, its last whole checkpoint, and the command that goes on from there."""
    from recipe.paravt.run_files import MetricsFile

    folder = Path(output_dir)
    lines = MetricsFile.read(folder / "metrics.jsonl")
    tracker = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    saved = tracker.read_text().strip() if tracker.is_file() else ""
    step = f"the last finished step is {lines[-1]['step']}" if lines else "no step was finished"
    checkpoint = f"the last checkpoint is global_step_{saved}" if saved else "there is no checkpoint"
    command = " ".join(json.dumps(word) if " " in word else word for word in [sys.executable, *sys.orig_argv[1:]])
    return f"{step}; {checkpoint}. The same command goes on from there:\n  {command}"


class _ProcessTable:
    """The processes that the driver started, they and theirs: all of a run with a local Ray, none of an existing
    cluster's."""

    def __init__(self) -> None:
        self._seen: dict[int, psutil.Process] = {}
        self._needed: dict[int, str] = {}
        self._stopped: dict[int, float] = {}

    @property
    def seen_daemons(self) -> bool:
        """Whether Ray's processes have been seen."""
        return bool(self._needed)

    def living(self) -> list[psutil.Process]:
        """Once seen a process stays known, also when its parent dies before it."""
        for process in psutil.Process().children(recursive=True):
            self._seen.setdefault(process.pid, process)
        self._seen = {pid: process for pid, process in self._seen.items() if process.is_running()}
        return list(self._seen.values())

    def trouble(self, settings: WatchSettings, elapsed_seconds: float) -> str | None:
        """A needed process that is gone, or one that is stopped for too long.

        Args:
            elapsed_seconds: since the last look. Looks are counted and not a clock, which would go on while the
                whole run, this process included, is suspended.
        """
        present = {}
        for process in self.living():
            try:
                present[process.pid] = (" ".join(process.cmdline()), process.status())
            except psutil.Error:
                continue
        for pid, name in self._needed.items():
            if pid not in present or present[pid][1] == psutil.STATUS_ZOMBIE:
                return f"{name} (process {pid}) is gone"
        for pid, (command, status) in present.items():
            program = command.split(" ")[0].rsplit("/", 1)[-1]
            if program.startswith(_NEEDED):
                self._needed[pid] = program
            if status != psutil.STATUS_STOPPED:
                self._stopped.pop(pid, None)
                continue
            self._stopped[pid] = self._stopped.get(pid, 0.0) + elapsed_seconds
            if self._stopped[pid] > settings.stopped_seconds:
                return f"{command[:80].strip()} (process {pid}) was stopped and does not answer"
        return None

    def kill_all(self) -> None:
        """Ends what is left of the run on this machine."""
        for process in self.living():
            with contextlib.suppress(psutil.Error):
                process.kill()
