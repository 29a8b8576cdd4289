"""``crop_video`` as a tool of verl's stock agent loop: the frames of the window come back as images.

Configured by ``config/crop_video_tool.yaml`` (``actor_rollout_ref.rollout.multi_turn.tool_config_path``). A row names
its video in ``extra_info.tools_kwargs.crop_video.create_kwargs.video``; a call never does. ParaVT's own loop
(``paravt_agent``) does not use this class: there a sub-agent watches the frames.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from PIL import Image
from verl.tools.base_tool import BaseTool

from paravt_tools import CROP_VIDEO_SCHEMA, CropWindow, FrameCache, ToolArgumentError, VideoError
from paravt_tools.dispatch import ERROR_PREFIX
from recipe.paravt import verl_adapter

DEFAULTS = {
    "fps": 1.0,
    "max_frames": 16,
    "min_pixels": 784,
    "max_pixels": 50_176,
    "read_seconds": 120.0,
    "cache_bytes": 2**28,
}
"""Settings of ``CropVideoTool``; frames as in the published run, limits chosen here."""


class CropVideoTool(BaseTool):
    """Crops the video of its row.

    Args:
        config: entries of ``DEFAULTS``; ``type`` is verl's own.

    Raises:
        ValueError: a setting that does not exist.
    """

    def __init__(self, config: dict[str, Any], tool_schema: verl_adapter.OpenAIFunctionToolSchema | None = None):
        unknown = sorted(set(config) - set(DEFAULTS) - {"type"})
        if unknown:
            raise ValueError(f"unknown setting {unknown[0]!r} of crop_video; there are {', '.join(DEFAULTS)}")
        super().__init__(config, tool_schema or self.get_openai_tool_schema())
        self._settings = {**DEFAULTS, **{name: config[name] for name in DEFAULTS if name in config}}
        self._cache = FrameCache(int(self._settings["cache_bytes"]))
        self._videos: dict[str, str] = {}

    def get_openai_tool_schema(self) -> verl_adapter.OpenAIFunctionToolSchema:
        return verl_adapter.tool_schema(CROP_VIDEO_SCHEMA)

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, verl_adapter.ToolResponse]:
        """Binds an instance to the video of a row.

        Raises:
            ValueError: the row names none.
        """
        video = (kwargs.get("create_kwargs") or {}).get("video")
        if not isinstance(video, str) or not video:
            raise ValueError(
                "the row names no video: extra_info.tools_kwargs.crop_video.create_kwargs.video is missing"
            )
        instance_id = instance_id or uuid4().hex
        self._videos[instance_id] = video
        return instance_id, verl_adapter.tool_response()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[verl_adapter.ToolResponse, float, dict[str, Any]]:
        """The frames of the window with their times, or a text that says what is wrong with the call."""
        path, settings = self._videos[instance_id], self._settings
        try:
            # An overview of one frame tells the duration, and is cached with the rest.
            info = (await self._read(path, 1, 0.0, None)).info
            window = CropWindow.from_arguments(parameters, info.duration_seconds)
            num_frames = window.num_frames(settings["fps"], int(settings["max_frames"]))
            batch = await self._read(path, num_frames, window.start_seconds, window.end_seconds)
        except (ToolArgumentError, VideoError) as error:
            reason = getattr(error, "reason", str(error))
            return verl_adapter.tool_response(ERROR_PREFIX + reason), 0.0, {"executed": 0}
        times = ", ".join(f"{seconds:.1f}" for seconds in batch.timestamps_seconds)
        images = [Image.fromarray(frame) for frame in batch.images]
        return verl_adapter.tool_response(f"Frames at {times} seconds", images), 0.0, {"executed": 1}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self._videos.pop(instance_id, None)

    async def _read(self, path: str, num_frames: int, start_seconds: float, end_seconds: float | None) -> Any:
        return await self._cache.read(
            path,
            num_frames,
            start_seconds,
            end_seconds,
            min_pixels=int(self._settings["min_pixels"]),
            max_pixels=int(self._settings["max_pixels"]),
            timeout_seconds=self._settings["read_seconds"],
        )
