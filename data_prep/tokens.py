"""How many tokens a row's user message has, counted without reading the video."""

from __future__ import annotations

import functools
from typing import Any

from data_prep.sampling import sampled_seconds
from data_prep.schema import MAX_PIXELS, MIN_PIXELS, VIDEO_PLACEHOLDER, frame_label
from data_prep.videos import VideoFacts

_PIXELS_PER_TOKEN = 32 * 32
"""Qwen3-VL: patches of 16 pixels, merged 2x2."""

_TOKENS_AROUND_FRAME = 2
"""``<|vision_start|>`` and ``<|vision_end|>``."""

_LONGEST_SECONDS = 99_999.9
"""Label of a frame whose time is not known: more than a day, for an upper bound."""


class PromptCounter:
    """Counts the tokens of a user message with its overview frames.

    The count is exact for a video of constant frame rate that starts at time 0. It is an upper bound where
    the duration, the number of frames or the size are not known.

    Args:
        tokenizer: one of transformers' with a chat template, in which ``<|vision_start|>`` is one token.
    """

    def __init__(self, tokenizer: Any):
        mark = "0123456789"
        rendered = tokenizer.apply_chat_template([{"role": "user", "content": mark}], tokenize=False)
        self._before, mark, self._after = rendered.partition(mark)
        if not mark:
            raise ValueError("the tokenizer's chat template leaves out what a user says")
        self._tokenizer = tokenizer
        # A frame's tokens are special, so that no token reaches over from one label into another.
        self._num_tokens_cached = functools.lru_cache(maxsize=1 << 17)(self._num_tokens)

    @classmethod
    def from_pretrained(cls, model: str) -> PromptCounter:
        """The counter for a model's folder (or name, where transformers has it)."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(model))

    def count(self, content: str, facts: VideoFacts, frame_budget: int) -> int:
        """Tokens of the message ``content``, which holds ``<video>`` once, at this frame budget."""
        before, _, after = content.partition(VIDEO_PLACEHOLDER)
        labels = self._labels(facts, frame_budget)
        num_text = self._num_tokens_cached(self._before + before + labels[0]) + self._num_tokens(after + self._after)
        num_labels = sum(map(self._num_tokens_cached, labels[1:]))
        return num_text + num_labels + len(labels) * (_TOKENS_AROUND_FRAME + _visual_tokens(facts))

    def _num_tokens(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _labels(self, facts: VideoFacts, frame_budget: int) -> list[str]:
        if facts.duration_seconds is None or facts.num_frames is None:
            return [frame_label(_LONGEST_SECONDS)] * frame_budget
        times = sampled_seconds(facts.num_frames, facts.duration_seconds, frame_budget)
        return [frame_label(seconds) for seconds in times]


def _visual_tokens(facts: VideoFacts) -> int:
    """Tokens of one frame."""
    if facts.height is None or facts.width is None:
        return MAX_PIXELS // _PIXELS_PER_TOKEN
    return _resized_pixels(facts.height, facts.width) // _PIXELS_PER_TOKEN


@functools.lru_cache(maxsize=4096)
def _resized_pixels(height: int, width: int) -> int:
    from paravt_tools import resized_size

    new_height, new_width = resized_size(height, width, MIN_PIXELS, MAX_PIXELS)
    return new_height * new_width
