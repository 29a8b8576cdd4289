"""A small byte-level BPE tokenizer in the shape of Qwen3-VL's, trained on this project's own texts.

It has Qwen3-VL's added tokens in their published order after the BPE vocabulary, Qwen's pre-tokenizer (digits
one by one) and a chat template of our own. So what depends on the shape of a vocabulary (tags of one token,
tags of several, forced prefixes, bytes that are no whole character) behaves as it does with the real model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from data_prep.synthetic import vocabulary_texts
from paravt_tools import CROP_VIDEO_SCHEMA
from recipe.paravt.rollout import prompts
from recipe.paravt.settings import THINK_PREFIX

MAX_POSITIONS = 32_768
"""Longest sequence of the tiny model, in tokens: the context of the published run (arXiv 2605.20342)."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Added tokens that ``skip_special_tokens`` drops; names and order of Qwen3-VL's published tokenizer."""

PLAIN_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Added tokens that decoding always keeps; they follow the special ones, as in Qwen3-VL."""

NUM_BYTES = 256


def chat_template() -> str:
    """Jinja source of the chat template beside this module."""
    return files("recipe.paravt.rollout").joinpath("chat_template.jinja").read_text(encoding="utf-8")


def training_texts() -> list[str]:
    """What the tiny model reads and writes: prompts, synthetic questions and answers, tools and calls."""
    return [*prompts.corpus(), *vocabulary_texts(), _tool_conversation()]


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """Trains the BPE and adds Qwen3-VL's tokens and the chat template.

    Args:
        texts: what to train on; added tokens in it are cut out, since the BPE never sees them.
        vocab_size: most ids wanted, added tokens included. Texts that run out of pairs
            give fewer.

    Returns:
        A ``Qwen2Tokenizer``, Qwen3-VL's class, with an id for every byte. Equal texts give an equal one.

    Raises:
        ValueError: ``vocab_size`` leaves no room for the 256 bytes and the added tokens.
    """
    from tokenizers import (  # type: ignore[import-untyped]
        AddedToken,
        Tokenizer,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import Qwen2Tokenizer

    added = (*SPECIAL_TOKENS, *PLAIN_TOKENS)
    smallest = NUM_BYTES + len(added)
    if vocab_size < smallest:
        raise ValueError(f"vocab_size is {vocab_size}; it must be at least {smallest}, bytes and added tokens alone")

    bpe = Tokenizer(models.BPE())
    qwen = Qwen2Tokenizer().backend_tokenizer
    bpe.normalizer, bpe.pre_tokenizer = qwen.normalizer, qwen.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added),
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_without(added, texts), trainer)
    model = json.loads(bpe.to_str())["model"]
    first_added = len(model["vocab"])
    return Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        added_tokens_decoder={
            first_added + offset: AddedToken(token, special=token in SPECIAL_TOKENS, normalized=False)
            for offset, token in enumerate(added)
        },
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        extra_special_tokens=list(SPECIAL_TOKENS[1:]),
        chat_template=chat_template(),
        model_max_length=MAX_POSITIONS,
    )


def _without(tokens: Sequence[str], texts: Iterable[str]) -> Iterator[str]:
    """The stretches of ``texts`` between ``tokens``."""
    cut = re.compile("|".join(map(re.escape, tokens)))
    for text in texts:
        yield from filter(None, cut.split(text))


def _tool_conversation() -> str:
    """The tool's description, calls in one turn and their responses, as the template renders them."""
    from transformers import Qwen2Tokenizer

    windows = [(0, 9.5), (12.25, 30), (41, 58.5), (60, 75), (96.5, 120)]
    calls = [
        {"name": CROP_VIDEO_SCHEMA["function"]["name"], "arguments": {"start_time": start, "end_time": end}}
        for start, end in windows
    ]
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": THINK_PREFIX, "tool_calls": calls},
        *(prompts.tool_message("Error:") for _ in calls),
        {"role": "assistant", "content": "<answer>"},
    ]
    renderer = Qwen2Tokenizer(chat_template=chat_template())
    return str(renderer.apply_chat_template(messages, tools=[CROP_VIDEO_SCHEMA], tokenize=False))
