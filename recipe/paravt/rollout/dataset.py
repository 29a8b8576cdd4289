"""Parquet rows of ``data_prep`` as verl's data set, and as the typed sample that the agent loop works on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from verl.utils.dataset.rl_dataset import RLHFDataset

from recipe.paravt.settings import ParaVTSettings


def without_none(value: Any) -> Any:
    """``value`` without the None entries that parquet puts into structs for keys a row does not have."""
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_none(item) for item in value]
    return value


class ParaVTDataset(RLHFDataset):
    """verl's data set with the video left to the agent loop.

    verl's own class would read the video while it loads a row, with its own sampling, and count its tokens by
    decoding every video at the start.
    """

    def maybe_filter_out_long_prompts(self, dataframe=None):
        # ``data_prep`` counts tokens when the data is made, and the loop scores what is too long all the same.
        return dataframe

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = without_none(dict(self.dataframe[item]))
        extra_info = row["extra_info"]
        return {
            "data_source": row["data_source"],
            "agent_name": row["agent_name"],
            "raw_prompt": row["prompt"],
            "paravt_videos": row["videos"],
            "reward_model": row["reward_model"],
            "extra_info": extra_info,
            "index": extra_info["index"],
            # verl builds its batches around one tensor.
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
        }


class RowError(ValueError):
    """A row that is no sample."""


@dataclass(frozen=True)
class Sample:
    """One prompt, as the agent loop needs it.

    Attributes:
        question: the user message's text, with ``<video>`` where the frames go.
        plain_question: the question alone, as annotated.
        video_path: where the file is, resolved.
        frame_budget: K, the overview frames that were drawn for this prompt.
        split: ``train`` or ``val``.
        duration_seconds: of the video, where the row says it; answers in per cent need it.
    """

    data_source: str
    question_id: str
    question: str
    plain_question: str
    question_type: str
    ground_truth: str
    options: tuple[str, ...] | None
    video: str
    video_path: str
    frame_budget: int
    min_pixels: int
    max_pixels: int
    split: str
    epoch: int
    duration_seconds: float | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any], settings: ParaVTSettings) -> Sample:
        """Reads a row of ``ParaVTDataset``.

        Args:
            settings: where videos are, and K for training rows where it is not their own. Validation rows keep
                theirs.

        Raises:
            RowError: the row lacks a column, holds several videos or something else than it must.
        """
        try:
            videos: Sequence[Mapping[str, Any]] = row["paravt_videos"]
            extra_info: Mapping[str, Any] = row["extra_info"]
            if len(videos) != 1:
                raise RowError(f"a row needs exactly one video, this one has {len(videos)}")
            video = videos[0]
            budget = int(video["nframes"])
            is_train = extra_info["split"] == "train"
            if settings.fixed_frame_budget is not None and is_train:
                budget = settings.fixed_frame_budget
            root = settings.video_root if is_train else settings.val_video_root or settings.video_root
            return cls(
                data_source=row["data_source"],
                question_id=str(extra_info["question_id"]),
                question=str(row["raw_prompt"][-1]["content"]),
                plain_question=str(extra_info["question"]),
                question_type=extra_info["question_type"],
                ground_truth=str(row["reward_model"]["ground_truth"]),
                options=tuple(extra_info["options"]) if extra_info.get("options") else None,
                video=video["video"],
                video_path=os.path.join(root or "", video["video"]),
                frame_budget=budget,
                min_pixels=int(video["min_pixels"]),
                max_pixels=int(video["max_pixels"]),
                split=extra_info["split"],
                epoch=int(extra_info.get("epoch", 0)),
                duration_seconds=extra_info.get("duration_seconds"),
            )
        except RowError:
            raise
        except KeyError as error:
            raise RowError(f"the row has no {error}; rows are made by python -m data_prep rl") from error
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            raise RowError(f"the row is none of python -m data_prep rl: {error}") from error
