"""verl's FSDP engine with the vision tower frozen, and a Hugging Face folder that says its precision.

The method moves the language model's weights only.

verl 0.9.1 declares ``actor.freeze_vision_tower`` and reads it nowhere. Here it is an entry of
``model.override_config``, which reaches the engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from recipe.paravt import verl_adapter

FREEZE_KEY = "freeze_vision_tower"


class FrozenVisionEngine(FSDPEngineWithLMHead):
    """The same engine; ``model.override_config.freeze_vision_tower`` keeps the vision weights as they are."""

    def _build_module(self) -> Any:
        module = super()._build_module()
        config: Any = self.model_config
        # verl writes every override into the model's configuration, which is saved; this one is none of its fields.
        for saved in (config.hf_config, module.config):
            if hasattr(saved, FREEZE_KEY):
                delattr(saved, FREEZE_KEY)
        if config.override_config.get(FREEZE_KEY):
            # The optimizer leaves parameters without a gradient alone, weight decay included.
            module.model.visual.requires_grad_(False)
        return module

    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        super().save_checkpoint(local_path, *args, **kwargs)
        folder = Path(local_path) / "huggingface"
        if torch.distributed.get_rank() == 0 and any(folder.glob("*.safetensors")):
            write_true_dtype(folder)


def write_true_dtype(folder: Path) -> None:
    """Makes the ``dtype`` in ``config.json`` that of the weights beside it.

    verl 0.9.1 always writes ``bfloat16`` there; ``transformers`` and vLLM would load float32 weights as that.
    """
    from safetensors import safe_open

    with safe_open(min(folder.glob("*.safetensors")), framework="pt") as weights:
        dtype = str(weights.get_tensor(next(iter(weights.keys()))).dtype).removeprefix("torch.")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for node in (config, *(value for value in config.values() if isinstance(value, dict))):
        if "dtype" in node:
            node["dtype"] = dtype
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def register_on_nvidia() -> None:
    """Makes verl choose this engine on NVIDIA GPUs."""
    verl_adapter.register_engine(FrozenVisionEngine, device="cuda", vendor="nvidia")
