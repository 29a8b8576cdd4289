"""The one guard around a rollout: verl's agent-loop worker, in which a rollout that fails is data.

verl counts a session that raises nowhere: its group gets smaller, and a lone survivor's advantage is its raw reward.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

from recipe.paravt import verl_adapter
from recipe.paravt.rollout.agent_loop import shared_assembler
from recipe.paravt.rollout.backend import SessionFailure
from recipe.paravt.rollout.dataset import RowError, Sample
from recipe.paravt.rollout.session import RolloutFailed
from recipe.paravt.settings import ParaVTSettings

logger = logging.getLogger(__name__)


class ParaVTAgentLoopWorker(verl_adapter.agent_loop_worker_class()):  # type: ignore[misc]
    """Runs rollouts; each one ends as rows that verl has, in a time that is known."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._settings = ParaVTSettings.from_config(verl_adapter.to_container(self.config.paravt))
        # Here and not when it is needed: where the processor is broken the run ends at its start.
        self._assembler = shared_assembler(
            self._settings, self.tokenizer, self.processor, verl_adapter.to_container(self.mm_processor_kwargs)
        )

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **row: Any) -> Any:
        limit_seconds = self._settings.limits.session_seconds
        try:
            return await asyncio.wait_for(self._rollout(sampling_params, trajectory, row), limit_seconds)
        except RolloutFailed as error:
            failed = error
        except asyncio.TimeoutError:
            failed = RolloutFailed(
                SessionFailure("session_timeout", f"no end in paravt.limits.session_seconds={limit_seconds:g}")
            )
        logger.warning("rollout %s/%s failed (%s): %s", row["uid"], row["session_id"], failed.kind, failed)
        output = self._assembler.failed_row(str(row["uid"]), self._sample(row), failed, int(row["global_steps"]))
        for name in ("agent_name", "trace"):
            row.pop(name, None)
        return await self._agent_loop_postprocess([output], trajectory["validate"], **row)

    async def _rollout(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], row: dict[str, Any]) -> Any:
        try:
            return await super()._run_agent_loop(sampling_params, trajectory, **row)
        except RolloutFailed:
            raise
        except Exception as error:
            # Here, where a TimeoutError is not yet that of the session.
            logger.exception("a rollout failed outside of its session")
            raise RolloutFailed(error) from error

    def _sample(self, row: dict[str, Any]) -> Sample | None:
        try:
            return Sample.from_row(row, self._settings)
        except RowError:
            return None


class ParaVTAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager, with our worker."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ParaVTAgentLoopWorker)
