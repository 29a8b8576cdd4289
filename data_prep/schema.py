"""The columns of every parquet file of this project, and what stands in its messages, once.

pyarrow is imported when a schema is asked for, so that importing this file costs nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

AGENT_NAME = "paravt_agent"
"""The recipe's agent loop; without this column verl runs its own single-turn loop."""

VIDEO_PLACEHOLDER = "<video>"
"""Marks, in a row's user message, where the overview frames go (veRL's convention)."""

FRAME_BUDGETS = (4, 8, 16, 32, 64)
"""Overview frames drawn from in training (arXiv 2605.20342)."""

VALIDATION_FRAME_BUDGET = 64
"""Overview frames of a validation row (arXiv 2605.20342)."""

MIN_PIXELS = 784
"""Least pixels of a frame, in the published configuration of arXiv 2605.20342."""

MAX_PIXELS = 50_176
"""Most pixels of an overview frame, in the published configuration of arXiv 2605.20342."""


def frame_label(seconds: float) -> str:
    """The text before a frame, in the form that Qwen3-VL's own processor gives video frames."""
    return f"<{seconds:.1f} seconds>"


@functools.cache
def rl_schema() -> pa.Schema:
    """Rows of ``rl-epoch*.parquet``, one a prompt, as verl's data set and the recipe's read them.

    ``videos`` holds exactly one struct; its ``video`` is a path relative to the video root and ``nframes``
    the frame budget K. In ``extra_info``, ``options`` is null unless the question is multiple choice,
    ``duration_seconds`` where it is not known, and ``num_prompt_tokens`` where no tokenizer was given. The
    latter counts the message in ``prompt`` as the model gets it, with its overview frames, without the system
    message and the tool schema, which the recipe adds.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("data_source", pa.string()),
            ("agent_name", pa.string()),
            ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
            ("videos", pa.list_(pa.struct(_video_fields()))),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            (
                "extra_info",
                pa.struct(
                    [
                        ("index", pa.int64()),
                        ("split", pa.string()),
                        ("question_id", pa.string()),
                        ("question_type", pa.string()),
                        ("question", pa.string()),
                        ("answer", pa.string()),
                        ("options", pa.list_(pa.string())),
                        ("duration_seconds", pa.float64()),
                        ("frame_budget", pa.int64()),
                        ("epoch", pa.int64()),
                        ("num_prompt_tokens", pa.int64()),
                    ]
                ),
            ),
        ]
    )


@functools.cache
def sft_schema() -> pa.Schema:
    """Rows of ``sft-*.parquet``, one a conversation of a main agent or of a sub-agent.

    ``videos`` holds exactly one struct. Its frames come from ``[start_seconds, end_seconds)``; both are null
    for the whole video.
    """
    import pyarrow as pa

    window = [("start_seconds", pa.float64()), ("end_seconds", pa.float64())]
    return pa.schema(
        [
            ("agent", pa.string()),
            ("question_id", pa.string()),
            ("videos", pa.list_(pa.struct([*_video_fields(), *window]))),
            ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ]
    )


def _video_fields() -> list[tuple[str, pa.DataType]]:
    import pyarrow as pa

    return [
        ("video", pa.string()),
        ("nframes", pa.int64()),
        ("min_pixels", pa.int64()),
        ("max_pixels", pa.int64()),
    ]
