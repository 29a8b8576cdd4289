"""A tiny, untrained Qwen3-VL checkpoint: the real architecture, small enough for two CPU cores.

The folder that ``write_checkpoint`` leaves is one that ``AutoProcessor``, ``AutoModelForImageTextToText`` and vLLM load
like a published one. Equal settings give equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.paravt.tiny.tokenizer import MAX_POSITIONS, build_tokenizer, training_texts

PATCH_PIXELS = 16
"""Side of a vision patch, as in Qwen3-VL."""

MERGE_PATCHES = 2
"""Patches along each side that become one token, as in Qwen3-VL: a token is 32 by 32 pixels."""

TEMPORAL_PATCH_FRAMES = 2
"""Frames of a video in one patch, as in Qwen3-VL; an image is doubled."""

IMAGE_SIZE_PIXELS = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
"""Fewest and most pixels of an image in Qwen3-VL's published ``preprocessor_config.json``.

Kept, although the frames here are smaller: where our own limits are not passed, frames are scaled up, as with
the published model.
"""

VIDEO_SIZE_PIXELS = {"shortest_edge": 4_096, "longest_edge": 25_165_824}
"""Fewest and most pixels of a whole video in Qwen3-VL's published ``video_preprocessor_config.json``."""


@dataclass(frozen=True)
class TinySizes:
    """Sizes of the model.

    Attributes:
        vocab_size: most token ids, added tokens included.
        hidden_size: width of the language model.
        num_layers, num_heads, num_key_value_heads: of the language model.
        head_size: of each head; vLLM's CPU kernels want 32 or more.
        intermediate_size: width inside the language model's MLP.
        vision_hidden_size, vision_num_layers, vision_num_heads, vision_intermediate_size: of the vision
            tower.
        vision_grid: learned positions along each side; other grids are interpolated.
        text_std, vision_std: standard deviations of the random weights.
    """

    vocab_size: int = 1_024
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_key_value_heads: int = 2
    head_size: int = 32
    intermediate_size: int = 384
    vision_hidden_size: int = 96
    vision_num_layers: int = 2
    vision_num_heads: int = 3
    vision_intermediate_size: int = 192
    vision_grid: int = 4
    text_std: float = 0.05
    vision_std: float = 0.035

    def __post_init__(self) -> None:
        if self.head_size < 32 or self.head_size % 2:
            raise ValueError(f"head_size is {self.head_size}; vLLM's CPU kernels need an even number from 32 on")
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}; it must be a multiple of num_key_value_heads, "
                f"{self.num_key_value_heads}"
            )
        # A vision head's size is halved for the two axes and halved again for sine and cosine.
        if self.vision_hidden_size % (4 * self.vision_num_heads):
            raise ValueError(
                f"vision_hidden_size is {self.vision_hidden_size}; it must be a multiple of "
                f"4 * vision_num_heads, {4 * self.vision_num_heads}"
            )


def build_model(sizes: TinySizes, tokenizer: Any, seed: int) -> Any:
    """A ``Qwen3VLForConditionalGeneration`` with random float32 weights.

    The seed decides them alone; torch's global random state is left as it was.
    """
    import torch
    from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in ("<|endoftext|>", "<|im_end|>")}
    config = Qwen3VLConfig(**_model_config(sizes, tokenizer))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config)
    # No sampling defaults: what a caller does not set is plain sampling, in vLLM and transformers alike.
    model.generation_config = GenerationConfig(
        eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]], pad_token_id=ids["<|endoftext|>"]
    )
    return model.to(torch.float32).eval()


def _model_config(sizes: TinySizes, tokenizer: Any) -> dict[str, Any]:
    # Rotary pairs: a third each for height and width, the rest for time, as published (24, 20, 20).
    pairs = sizes.head_size // 2
    spatial = pairs // 3
    special = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for name, token in {
            "image": "image_pad",
            "video": "video_pad",
            "vision_start": "vision_start",
            "vision_end": "vision_end",
        }.items()
    }
    return {
        **special,
        "tie_word_embeddings": True,
        "text_config": {
            "vocab_size": len(tokenizer),
            "hidden_size": sizes.hidden_size,
            "intermediate_size": sizes.intermediate_size,
            "num_hidden_layers": sizes.num_layers,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_key_value_heads,
            "head_dim": sizes.head_size,
            "max_position_embeddings": MAX_POSITIONS,
            "initializer_range": sizes.text_std,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [pairs - 2 * spatial, spatial, spatial],
                "mrope_interleaved": True,
            },
            "bos_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "dtype": "float32",
        },
        "vision_config": {
            "depth": sizes.vision_num_layers,
            "hidden_size": sizes.vision_hidden_size,
            "intermediate_size": sizes.vision_intermediate_size,
            "num_heads": sizes.vision_num_heads,
            "out_hidden_size": sizes.hidden_size,
            "num_position_embeddings": sizes.vision_grid**2,
            "deepstack_visual_indexes": [0],
            "patch_size": PATCH_PIXELS,
            "spatial_merge_size": MERGE_PATCHES,
            "temporal_patch_size": TEMPORAL_PATCH_FRAMES,
            "initializer_range": sizes.vision_std,
            "dtype": "float32",
        },
        "dtype": "float32",
    }


def build_processor(tokenizer: Any) -> Any:
    """A ``Qwen3VLProcessor`` with the published sizes and normalisation."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    shared = {
        "patch_size": PATCH_PIXELS,
        "merge_size": MERGE_PATCHES,
        "temporal_patch_size": TEMPORAL_PATCH_FRAMES,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=dict(IMAGE_SIZE_PIXELS), **shared),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=dict(VIDEO_SIZE_PIXELS), **shared),
        chat_template=tokenizer.chat_template,
    )


def write_checkpoint(output: Path, sizes: TinySizes, seed: int) -> int:
    """Writes model, tokenizer, chat template and processor files into ``output``, made where missing.

    Returns:
        The number of parameters; tied ones count once.
    """
    tokenizer = build_tokenizer(training_texts(), sizes.vocab_size)
    model = build_model(sizes, tokenizer, seed)
    output.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(output)
    # A file for each part, as published; AutoProcessor puts them together.
    processor = build_processor(tokenizer)
    for part in (processor.tokenizer, processor.image_processor, processor.video_processor):
        part.save_pretrained(output)
    return sum(parameter.numel() for parameter in model.parameters())
