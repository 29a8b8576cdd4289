"""How a process knows that it belongs to a run which ``recipe.paravt.main`` (or our SFT entry) started.

The plug-ins are loaded in every veRL and vLLM process of the environment, also in other people's runs, where
they may only register names. Ray starts processes with the driver's environment, so the mark travels there.
These are not settings: nobody sets them by hand, and nothing but "ours or not" and "CPU or not" is read from them.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import MutableMapping, Sequence
from pathlib import Path

RUN_VARIABLE = "PARAVT_RUN_ID"
CPU_PLATFORM_NAME = "paravt_cpu"
PLATFORM_VARIABLE = "VERL_PLATFORM"


def in_our_run() -> bool:
    """Whether this process belongs to a run that this recipe started."""
    return bool(os.environ.get(RUN_VARIABLE))


def run_id() -> str:
    """The identity of this run, unique on the machine; empty outside a run of ours."""
    return os.environ.get(RUN_VARIABLE, "")


def on_cpu() -> bool:
    """Whether this process belongs to a run of ours that trains on the CPU."""
    return in_our_run() and os.environ.get(PLATFORM_VARIABLE) == CPU_PLATFORM_NAME


def requested_device(arguments: Sequence[str]) -> str:
    """``cpu`` or ``cuda``: the last ``device=`` among the command-line arguments, ``cuda`` without one."""
    choices = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("device=")]
    return choices[-1] if choices else "cuda"


def run_environment(run_id: str, device: str) -> dict[str, str]:
    """The environment variables that mark every process of a run.

    Args:
        run_id: unique on this machine; becomes part of socket names.
        device: ``cpu`` or ``cuda``.
    """
    variables = {RUN_VARIABLE: run_id}
    if device == "cpu":
        variables |= {
            PLATFORM_VARIABLE: CPU_PLATFORM_NAME,
            # verl splits this list to name devices; on the CPU it only numbers the logical slots.
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES") or "0",
        }
    return variables


def _missing_of_user() -> dict[str, str]:
    """A name and a home for a user who has none (``docker run --user 12345``).

    torch asks for a name when it is imported; Ray keeps its token at home, vLLM and ``datasets`` their caches.
    """
    variables = {}
    try:
        getpass.getuser()
    except (KeyError, OSError):
        variables["USER"] = str(os.getuid())
    if not os.access(os.path.expanduser("~"), os.W_OK):
        variables["HOME"] = os.path.join(tempfile.gettempdir(), f"home-{os.getuid()}")
    return variables


def mark_process(environment: MutableMapping[str, str], run_id: str, device: str) -> None:
    """Writes the marks, and what the user lacks, into ``environment`` (``os.environ``, before Ray starts)."""
    missing = _missing_of_user()
    if "HOME" in missing:
        Path(missing["HOME"]).mkdir(mode=0o700, exist_ok=True)
    environment.update(run_environment(run_id, device) | missing)
