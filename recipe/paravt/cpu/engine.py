"""verl's FSDP engine on the CPU. ``register.py`` registers it."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch

from recipe.paravt.training.engine import FrozenVisionEngine


class CpuFSDPEngine(FrozenVisionEngine):
    """The same engine, without moving a reference model's weights from the CPU to the CPU."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Ray and torchrun give a worker one OpenMP thread, whatever the machine has.
        ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks_here))

    def _build_fsdp_module(self, module: Any) -> Any:
        # verl offloads every forward-only model to pinned memory, which needs a CUDA driver.
        config: Any = self.engine_config  # type: ignore[has-type]
        self.engine_config = dataclasses.replace(config, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config
