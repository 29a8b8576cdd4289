"""What verl loads in every process (entry-point group ``verl.plugins``).

Importing this module registers names: the advantage estimator ``para_grpo``, the agent loop ``paravt_agent`` and the
platform ``paravt_cpu``. In processes of a run of ours (``run_marker.py``) it also registers the V1 trainer
``para_grpo`` (importing verl's trainers decides on the platform, which a stock run has to be left to do itself, with
whatever plug-ins come after us), selects our vLLM replica and, without a GPU, the CPU backend, and sees that the
machine has a guard.

verl swallows errors of plug-ins (``except Exception``) and goes on without them; a run of ours would then end
much later with an error about something else. So in a run of ours a failure here ends the process.
"""

from __future__ import annotations

import logging
import traceback
import warnings

from recipe.paravt.lifecycle.run_marker import CPU_PLATFORM_NAME, in_our_run, on_cpu, run_id


def _load_replica() -> type:
    if on_cpu():
        from recipe.paravt.cpu.server import CpuReplica

        return CpuReplica
    from recipe.paravt.training.weight_transfer import RunReplica

    return RunReplica


def _name_levels() -> None:
    """Warnings of ours begin with their level, by which the console knows them; Python's last resort leaves it out."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    for name in ("recipe.paravt", "paravt_tools"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(handler)
            logger.propagate = False


def _ignore_optional_engines() -> None:
    """verl warns, in every process, of each of the five training engines whose packages are not installed."""
    warnings.filterwarnings("ignore", message=r"\w+ engine is not available", category=UserWarning)


def register() -> None:
    """Registers everything; safe to call twice."""
    if in_our_run():
        _ignore_optional_engines()
    from recipe.paravt import verl_adapter
    from recipe.paravt.cpu.platform import CpuPlatform
    from recipe.paravt.training.advantage import para_grpo_estimator

    verl_adapter.register_platform(CPU_PLATFORM_NAME, CpuPlatform)
    verl_adapter.register_advantage_estimator("para_grpo", para_grpo_estimator)
    verl_adapter.register_agent_loop("paravt_agent", "recipe.paravt.rollout.agent_loop.ParaVTAgentLoop")
    if on_cpu():
        from recipe.paravt.cpu.register import register_cpu_backend

        # Before the trainer, whose imports bind what this replaces.
        register_cpu_backend()
    elif in_our_run():
        from recipe.paravt.training.engine import register_on_nvidia

        register_on_nvidia()
    if in_our_run():
        from recipe.paravt.lifecycle.guard import guard_this_machine
        from recipe.paravt.lifecycle.leftovers import name_shared_memory
        from recipe.paravt.training import trainer  # noqa: F401  (registers itself)

        _name_levels()
        verl_adapter.register_rollout(_load_replica, "recipe.paravt.training.weight_transfer.RunServerAdapter")
        name_shared_memory(run_id())
        guard_this_machine()


try:
    register()
except Exception as error:
    if in_our_run():
        traceback.print_exc()
        raise SystemExit(f"paravt-verl: the verl plug-in could not register: {error!r}") from error
    raise
