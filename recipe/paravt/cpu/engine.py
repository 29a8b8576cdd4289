"""verl's FSDP engine on the CPU. Importing this module registers it for the device ``cpu``."""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuFSDPEngine(FSDPEngineWithLMHead):
    """The same engine, without moving a reference model's weights from the CPU to the CPU."""

    def _build_fsdp_module(self, module: Any) -> Any:
        # verl offloads every forward-only model to pinned memory, which needs a CUDA driver.
        config = self.engine_config
        self.engine_config = dataclasses.replace(config, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config
