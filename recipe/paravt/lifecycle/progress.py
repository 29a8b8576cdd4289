"""What the trainer is doing, told to the driver through Ray's own key-value store, and the wish to stop told back.

It is the one thing that every process of a run reaches, on whatever machine, and it costs a step less than a
millisecond a phase.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from recipe.paravt.lifecycle.run_marker import run_id


@dataclass(frozen=True)
class Progress:
    """Where a run is.

    Attributes:
        step: the one in work; 0 while the run starts.
        phase: in words, to follow "while".
        num_steps: the last step; 0 while it is not known.
    """

    step: int = 0
    phase: str = "starting"
    num_steps: int = 0

    def __str__(self) -> str:
        return f"while {self.phase}" + (f", step {self.step}" if self.step else "")


def _key(name: str) -> bytes:
    return f"paravt/{run_id()}/{name}".encode()


def report(progress: Progress) -> None:
    """Called by the trainer when a phase begins."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(_key("progress"), json.dumps(dataclasses.astuple(progress)).encode())


def current() -> Progress:
    """Called by the driver."""
    from ray.experimental import internal_kv

    value = internal_kv._internal_kv_get(_key("progress"))
    return Progress(*json.loads(value)) if value else Progress()


def request_stop() -> None:
    """Called by the driver: the run shall save a checkpoint when the current step ends, and end."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(_key("stop"), b"1")


def stop_requested() -> bool:
    """Called by the trainer."""
    from ray.experimental import internal_kv

    return internal_kv._internal_kv_get(_key("stop")) is not None
