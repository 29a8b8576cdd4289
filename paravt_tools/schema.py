"""The one copy of the tool's function schema."""

from __future__ import annotations

from typing import Any

CROP_VIDEO_SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "crop_video",
        "description": (
            "Look closely at a part of the video, from start_time up to but not including end_time. "
            "Several calls in one turn run at the same time."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "start_time": {"type": "number", "description": "Start of the part, in seconds."},
                "end_time": {"type": "number", "description": "End of the part, in seconds."},
            },
            "required": ["start_time", "end_time"],
        },
    },
}
"""OpenAI function schema of ``crop_video``, named as LongVT's and ParaVT's trajectories name it."""
