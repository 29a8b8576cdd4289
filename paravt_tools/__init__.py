"""The ``crop_video`` tool without a trainer: calls, windows, frames, a frame cache, parallel dispatch.

Importing this package imports the standard library only; numpy, decord and PyAV come in with the first video.
"""

from paravt_tools.cache import FrameCache
from paravt_tools.dispatch import ToolResult, dispatch_calls
from paravt_tools.errors import ToolArgumentError, VideoError
from paravt_tools.frames import FrameBatch, read_frames
from paravt_tools.probe import VideoInfo, probe_video
from paravt_tools.schema import CROP_VIDEO_SCHEMA
from paravt_tools.sizes import resized_size
from paravt_tools.windows import CropWindow
from reward_fns.grammar import ParsedCalls, ToolCall, ToolCallError, parse_tool_calls, render_tool_call

__all__ = [
    "CROP_VIDEO_SCHEMA",
    "CropWindow",
    "FrameBatch",
    "FrameCache",
    "ParsedCalls",
    "ToolArgumentError",
    "ToolCall",
    "ToolCallError",
    "ToolResult",
    "VideoError",
    "VideoInfo",
    "dispatch_calls",
    "parse_tool_calls",
    "probe_video",
    "read_frames",
    "render_tool_call",
    "resized_size",
]
