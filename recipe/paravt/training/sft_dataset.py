"""Cold-start conversations for verl's SFT trainer, laid out by the same code as the rollouts of RL.

verl's own multi-turn class computes Qwen3-VL's positions with Qwen2-VL's function and fails on videos; and a cold
start whose tokens differ from the agent loop's would teach another format than the one that is rolled out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import datasets
import torch
from omegaconf import ListConfig
from PIL import Image
from torch.utils.data import Dataset

from paravt_tools import CROP_VIDEO_SCHEMA, read_frames
from recipe.paravt import verl_adapter
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.dataset import without_none
from recipe.paravt.rollout.episode import Episode
from recipe.paravt.rollout.token_text import TokenDecoder
from recipe.paravt.settings import THINK_PREFIX


class ParaVTSFTDataset(Dataset):
    """Rows ``agent, videos, messages`` (``python -m data_prep synthetic --transcripts``) as training sequences.

    Every token of an assistant turn carries loss, its end-of-turn token and a think prefix included: RL forces the
    prefix in some arms only, and the others must have learned it.

    Args:
        parquet_files: one or several files.
        config: verl's ``data`` node; ``video_root``, ``dispatch``, ``mm_processor_kwargs`` and ``max_length`` are
            read.
        max_samples: the first rows only; -1 for all.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ):
        if processor is None:
            raise ValueError("a vision-language model is needed: this one has no processor")
        files = list(parquet_files) if isinstance(parquet_files, list | tuple | ListConfig) else [parquet_files]
        self._rows = datasets.load_dataset("parquet", data_files=files, split="train")
        if max_samples > 0:
            self._rows = self._rows.select(range(min(max_samples, len(self._rows))))
        self._tokenizer = tokenizer
        self._processor = processor
        self._video_root = config.get("video_root") or ""
        self._dispatch = config.get("dispatch", "parallel")
        self._max_length = config.max_length
        mm_processor_kwargs = verl_adapter.to_container(config.mm_processor_kwargs)
        self._builder = verl_adapter.token_builder(tokenizer, processor, mm_processor_kwargs)
        self._decoder = TokenDecoder(tokenizer)
        self._end_of_turn_id = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def __len__(self) -> int:
        return len(self._rows)

    def episode(self, index: int) -> Episode:
        """The conversation of a row."""
        row = without_none(dict(self._rows[index]))
        (video,) = row["videos"]
        frames = read_frames(
            os.path.join(self._video_root, video["video"]),
            video["nframes"],
            video.get("start_seconds", 0.0),
            video.get("end_seconds"),
            min_pixels=video["min_pixels"],
            max_pixels=video["max_pixels"],
        )
        question, *turns = row["messages"]
        times = frames.timestamps_seconds.tolist()
        if row["agent"] == "main":
            messages, tools = prompts.main_messages(question["content"], times, self._dispatch), [CROP_VIDEO_SCHEMA]
        else:
            messages, tools = prompts.subagent_messages(question["content"], times), None
        images = [Image.fromarray(frame) for frame in frames.images]
        episode = Episode(self._builder, self._decoder, self._end_of_turn_id, messages, images, tools)
        responses: list[dict[str, Any]] = []
        for turn in turns:
            if turn["role"] == "tool":
                responses.append(prompts.tool_message(turn["content"]))
                continue
            if responses:
                episode.append_context(responses, episode.context_ids(responses))
                responses = []
            ids = [*self._turn_ids(turn["content"]), self._end_of_turn_id]
            episode.append_turn((), ids, [0.0] * len(ids))
        return episode

    def __getitem__(self, index: int) -> dict[str, Any]:
        """``input_ids`` and ``loss_mask`` ``[L]``, ``position_ids`` ``[4, L]``, ``multi_modal_inputs``."""
        episode = self.episode(index)
        input_ids = torch.tensor(episode.ids)
        if len(input_ids) > self._max_length:
            raise ValueError(f"row {index} has {len(input_ids)} tokens, data.max_length is {self._max_length}")
        grid = episode.mm_inputs["image_grid_thw"]
        return {
            "input_ids": input_ids,
            "position_ids": verl_adapter.position_ids(self._processor, input_ids, grid),
            "loss_mask": torch.tensor([0] * len(episode.prompt_ids) + episode.response_mask),
            "multi_modal_inputs": {"pixel_values": episode.mm_inputs["pixel_values"], "image_grid_thw": grid},
        }

    def _turn_ids(self, text: str) -> list[int]:
        # Apart, so that the prefix's tokens are the ones that RL forces.
        prefix = THINK_PREFIX if text.startswith(THINK_PREFIX) else ""
        encode = self._tokenizer.encode
        return [
            *encode(prefix, add_special_tokens=False),
            *encode(text[len(prefix) :], add_special_tokens=False),
        ]
