"""verl's FSDP engine with the vision tower frozen: the method moves the language model's weights only.

verl 0.9.1 declares ``actor.freeze_vision_tower`` and reads it nowhere. Here it is an entry of
``model.override_config``, which reaches the engine.
"""

from __future__ import annotations

from typing import Any

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

FREEZE_KEY = "freeze_vision_tower"


class FrozenVisionEngine(FSDPEngineWithLMHead):
    """The same engine; ``model.override_config.freeze_vision_tower`` keeps the vision weights as they are."""

    def _build_module(self) -> Any:
        module = super()._build_module()
        config: Any = self.model_config
        # verl writes every override into the model's configuration, which is saved; this one is none of its fields.
        if hasattr(config.hf_config, FREEZE_KEY):
            delattr(config.hf_config, FREEZE_KEY)
        if config.override_config.get(FREEZE_KEY):
            # The optimizer leaves parameters without a gradient alone, weight decay included.
            module.model.visual.requires_grad_(False)
        return module


def register_on_nvidia() -> None:
    """Makes verl choose this engine on NVIDIA GPUs: it looks for an engine of the vendor before a general one."""
    EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device="cuda", vendor="nvidia")(FrozenVisionEngine)
