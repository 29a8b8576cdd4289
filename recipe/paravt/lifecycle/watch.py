"""Watches the processes that a run depends on, from the driver, so that none dies in silence.

verl waits for ever for a killed agent-loop worker, and for the receiver of weights. The driver outlives them all, so
it looks, every few seconds and off the training's own threads, at what costs a step nothing: the processes on this
machine, Ray's own table of actors (all machines), and the phase that the trainer says it is in.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recipe.paravt.lifecycle import progress
from recipe.paravt.lifecycle.guard import Guard, clean_up
from recipe.paravt.lifecycle.processes import RunProcesses
from recipe.paravt.lifecycle.progress import Progress
from recipe.paravt.lifecycle.run_marker import run_id

_MEANT = {"RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED"}
"""Reasons of Ray for an actor that somebody ended on purpose."""


@dataclass(frozen=True)
class WatchSettings:
    """Times in seconds, chosen here: a run ends within two minutes of the death of a process it needs.

    Attributes:
        grace_seconds: Ray and verl notice most deaths themselves and end with a traceback that says more; they get
            this long.
        stopped_seconds: for how long a process may be stopped.
        silence_seconds: for how long Ray's control process may not answer.
        phase_seconds: for how long the trainer may be in one phase.
    """

    poll_seconds: float = 3.0
    grace_seconds: float = 10.0
    stopped_seconds: float = 30.0
    silence_seconds: float = 45.0
    phase_seconds: float = 7200.0


class ProcessWatch:
    """Context manager around a run; ``trouble`` says what died, if anything did.

    When something died and the run does not end by itself, the watch ends it: it prints what died and exits with
    status 1. The guard (``guard.py``) ends what is left of the run.

    Args:
        describe_end: what to print after the trouble: how far the run came, how to go on.
        guard: of this machine.
        report: shows the message of a run that the watch ends.
    """

    def __init__(
        self,
        describe_end: Callable[[], str],
        guard: Guard,
        settings: WatchSettings | None = None,
        *,
        report: Callable[[str], None],
    ):
        self._report = report
        self._describe_end = describe_end
        self._guard = guard
        self._settings = settings or WatchSettings()
        self._processes = RunProcesses(run_id(), needed=[guard.pid])
        self._ray = _RayWatch(self._settings)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-watch", daemon=True)
        self.trouble: str | None = None

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        self._ray.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._ray.leave()

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self._ray.progress

    def message(self) -> str:
        """What died, when, and how to go on."""
        return f"{self.trouble}, {self.progress}\n{self._describe_end()}"

    def look(self, seconds: float = 5.0) -> None:
        """Looks for some seconds: a run that failed by itself may be faster than the watch, and than Ray's table."""
        deadline = time.monotonic() + seconds
        while not self.trouble and time.monotonic() < deadline:
            self._look(0.5)
            with contextlib.suppress(Exception):  # Ray may be gone by now; the run's own error is there to tell
                self._ray.look()
            time.sleep(0.5)

    def _look(self, elapsed_seconds: float) -> None:
        self._processes.look(elapsed_seconds)
        self.trouble = self._processes.trouble(self._settings.stopped_seconds)
        if self.trouble:
            return
        if self._ray.dead_actor:
            pid, words = self._ray.dead_actor
            # The kernel knows the signal, Ray does not.
            self.trouble = self._processes.killed(pid) or words
        else:
            self.trouble = self._ray.trouble

    def _watch(self) -> None:
        while not self.trouble and not self._left.wait(self._settings.poll_seconds):
            self._look(self._settings.poll_seconds)
            self._ray.wait_for_answer(self._settings.poll_seconds)
        if self.trouble and not self._left.wait(self._settings.grace_seconds):
            self._end()

    def _end(self) -> None:
        self._report(self.message())
        # Not ray.shutdown(): with the main thread waiting in Ray, it ended the driver with status 0. The guard ends
        # the rest, if there still is one.
        if not self._guard.wake():
            clean_up(run_id(), self._guard.folder, self._processes)
        os._exit(1)


class _RayWatch:
    """Asks Ray in a thread of its own: a control process that is stopped lets a question wait for ever."""

    def __init__(self, settings: WatchSettings):
        self._settings = settings
        self._left = threading.Event()
        self._silent_seconds = 0.0
        self._phase_seconds = 0.0
        self._has_answered = False
        self.progress = Progress()
        self.dead_actor: tuple[int, str] | None = None

    def start(self) -> None:
        threading.Thread(target=self._watch, name="ray-watch", daemon=True).start()

    def leave(self) -> None:
        self._left.set()

    def wait_for_answer(self, elapsed_seconds: float) -> None:
        """Counts the time since Ray last answered."""
        self._silent_seconds += elapsed_seconds
        self._phase_seconds += elapsed_seconds

    @property
    def trouble(self) -> str | None:
        if self._has_answered and self._silent_seconds > self._settings.silence_seconds:
            return f"Ray's control process has not answered for {self._silent_seconds:.0f} s"
        if self._phase_seconds > self._settings.phase_seconds:
            return (
                f"the trainer has not come further for {self._phase_seconds:.0f} s, "
                f"paravt.limits.phase_seconds is {self._settings.phase_seconds:g}"
            )
        return None

    def look(self) -> None:
        """Asks Ray once."""
        import ray

        if not ray.is_initialized():
            return
        self.dead_actor = self.dead_actor or dead_actor()
        now = progress.current()
        if now != self.progress:
            self.progress, self._phase_seconds = now, 0.0
        self._silent_seconds, self._has_answered = 0.0, True

    def _watch(self) -> None:
        while not self._left.wait(self._settings.poll_seconds):
            with contextlib.suppress(Exception):  # no answer: counted, and told when it is too long
                self.look()


def dead_actor() -> tuple[int, str] | None:
    """The pid of the first actor of this job that died without being meant to, and how, in words."""
    import ray
    from ray._private import state

    job = ray.JobID(bytes.fromhex(ray.get_runtime_context().get_job_id()))
    # One death brings others with it.
    actors = sorted(
        state.actors(job_id=job, actor_state_name="DEAD").values(),
        key=lambda actor: (_reason(actor) == "OWNER_DIED", actor["EndTime"]),
    )
    for actor in actors:
        cause = actor["DeathCause"]
        if cause.HasField("oom_context"):
            return actor["Pid"], f"{_name(actor)} was killed: out of memory. {cause.oom_context.error_message}"
        if cause.HasField("actor_died_error_context") and _reason(actor) not in _MEANT:
            first_line = " ".join(cause.actor_died_error_context.error_message.split())[:200]
            return actor["Pid"], f"{_name(actor)} died ({_reason(actor)}): {first_line}"
    return None


def _reason(actor: dict[str, Any]) -> str:
    died = actor["DeathCause"].actor_died_error_context
    return type(died).Reason.Name(died.reason)


def _name(actor: dict[str, Any]) -> str:
    return f"{actor['ActorClassName']} (process {actor['Pid']} on {actor['Address']['IPAddress']})"
