"""What vLLM loads in its server, EngineCore and worker processes (entry-point group ``vllm.general_plugins``)."""

from __future__ import annotations

import ctypes
import signal
import sys

from recipe.paravt.lifecycle.leftovers import name_shared_memory
from recipe.paravt.lifecycle.run_marker import in_our_run, run_id

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def register() -> None:
    """In a run of ours: the process dies with its parent, so that no EngineCore outlives a killed server, and its
    shared memory carries the run's name.

    verl does this for vLLM's workers only. Outside a run of ours this does nothing.

    Raises:
        SystemExit: the kernel refused; the run would leave processes behind.
    """
    if not in_our_run() or not sys.platform.startswith("linux"):
        return
    name_shared_memory(run_id())
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise SystemExit(f"paravt-verl: prctl(PR_SET_PDEATHSIG) failed, errno {ctypes.get_errno()}")
