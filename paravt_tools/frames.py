"""Frames of a window of a video, at the size the model takes, with the times at which they are shown."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paravt_tools.errors import VideoError
from paravt_tools.probe import Scan, VideoInfo, scan_video, video_errors
from paravt_tools.sizes import resized_size

if TYPE_CHECKING:
    import numpy as np

_DECORD_CODECS = frozenset({"h264", "vp9"})
"""Codecs of which decord gives the right frames. Measured (decord2 3.4.0): after seeks in HEVC it gives wrong ones
or fails, of MPEG-4 in AVI it gives wrong ones."""

_DECORD_SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm"})
"""Containers in which decord finds frames. Measured: in MPEG-TS it finds none."""


_NOT_DECORD_WIDTHS = frozenset({32, 96})
"""Widths in pixels at which decord takes the padding of rows for a fourth channel. Measured for all multiples of 32
up to 1024."""


@dataclass(frozen=True)
class FrameBatch:
    """Frames of one video, in order.

    Attributes:
        images: uint8 ``[T, H, W, 3]``, RGB, upright.
        timestamps_seconds: float64 ``[T]``, rising; when each frame begins to show, on the stream's clock.
        info: of the whole file; none for frames that come from no file.
    """

    images: np.ndarray
    timestamps_seconds: np.ndarray
    info: VideoInfo | None


def read_frames(
    path: str | os.PathLike[str],
    num_frames: int,
    start_seconds: float = 0.0,
    end_seconds: float | None = None,
    *,
    min_pixels: int,
    max_pixels: int,
) -> FrameBatch:
    """Frames spread evenly over the window from ``start_seconds`` up to but not including ``end_seconds``.

    The window, cut to the time in which the video has frames, is divided into ``num_frames`` equal parts; the
    frame on show in the middle of each part is taken, each frame once. So there are at most ``num_frames``
    and at least one: a window without a frame of its own gives the nearest. The first frame may have begun to
    show before the window.

    Frames have the size ``resized_size`` gives. decord decodes them where it gives the right ones, PyAV
    otherwise (HEVC, open groups of pictures, cut by an edit list, MPEG-TS, AVI, 32 or 96 pixels wide).

    Args:
        num_frames: at least 1.
        start_seconds: finite, before ``end_seconds``; on the stream's own clock, as all times here.
        end_seconds: none, or past the video, is its end.
        min_pixels, max_pixels: limits of height x width, as in ``resized_size``.

    Raises:
        ValueError: an argument out of its range.
        VideoError: the file cannot be read.
    """
    if num_frames < 1:
        raise ValueError(f"num_frames is {num_frames}; it must be at least 1")
    end = math.inf if end_seconds is None else end_seconds
    if not (math.isfinite(start_seconds) and start_seconds < end):
        raise ValueError(f"the window is {start_seconds} to {end_seconds} seconds; the start must come first")
    scan = scan_video(path)
    numbers = _frame_numbers(scan, num_frames, start_seconds, end)
    height, width = resized_size(scan.info.height, scan.info.width, min_pixels, max_pixels)
    name = os.fspath(path)
    with video_errors(name):
        images = _decord_images(name, scan, numbers, height, width)
        if images is None:
            images = _av_images(name, scan, numbers, height, width)
    return FrameBatch(images, scan.times_seconds[numbers], scan.info)


def _frame_numbers(scan: Scan, num_frames: int, start_seconds: float, end_seconds: float) -> np.ndarray:
    """Which frames are on show in the middles of the window's parts; int64, rising, none twice."""
    import numpy as np

    info, times = scan.info, scan.times_seconds
    start, end = max(start_seconds, info.start_seconds), min(end_seconds, info.duration_seconds)
    if start >= end:
        # The window lies before the first frame or after the last.
        return np.array([0 if end_seconds <= info.start_seconds else len(times) - 1])
    middles = start + (np.arange(num_frames) + 0.5) * ((end - start) / num_frames)
    even = info.start_seconds + np.arange(info.num_frames) / info.fps
    if np.abs(times - even).max() <= scan.tick_seconds and scan.tick_seconds < 0.5 / info.fps:
        # Constant rate: counted, as data_prep.sampling does. Times are rounded to ticks (1 ms in Matroska),
        # which would put a middle that falls on a frame's begin into the frame before it.
        numbers = np.floor((middles - info.start_seconds) * info.fps + 1e-6).astype(np.int64)
    else:
        numbers = np.searchsorted(times, middles + 1e-6 / info.fps, side="right") - 1
    return np.unique(np.clip(numbers, 0, len(times) - 1))


def _decord_images(path: str, scan: Scan, numbers: np.ndarray, height: int, width: int) -> np.ndarray | None:
    """uint8 ``[T, height, width, 3]``; none where decord fails or its frames are not surely the right ones."""
    suffix = os.path.splitext(path)[1].lower()
    if not scan.is_plain or scan.info.codec not in _DECORD_CODECS or suffix not in _DECORD_SUFFIXES:
        return None
    if width in _NOT_DECORD_WIDTHS:
        return None
    import decord
    import numpy as np

    try:
        reader = decord.VideoReader(path, ctx=decord.cpu(0), width=width, height=height, num_threads=1)
        if len(reader) != scan.info.num_frames:
            return None
        begins = reader.get_frame_timestamp(range(len(reader)))[:, 0].astype(np.float64)
        # decord counts from the first frame, in float32, which holds milliseconds for some hours.
        if np.abs(begins - begins[0] - (scan.times_seconds - scan.times_seconds[0])).max() > 2e-3:
            return None
        images = reader.get_batch(numbers.tolist()).asnumpy()
    except (decord.DECORDError, RuntimeError):
        # decord gives up on some good files; of a bad one PyAV says what is wrong.
        return None
    return images if images.shape[1:] == (height, width, 3) else None


def _av_images(path: str, scan: Scan, numbers: np.ndarray, height: int, width: int) -> np.ndarray:
    """uint8 ``[T, height, width, 3]``.

    Raises:
        VideoError: a frame that the packets announce does not come out of the decoder.
    """
    import av
    import numpy as np

    turns = scan.info.rotation // 90
    stored_height, stored_width = (width, height) if turns % 2 else (height, width)
    wanted: dict[int, Any] = dict.fromkeys(scan.ticks[numbers].tolist())
    first, last = min(wanted), max(wanted)
    # Seeking goes by the order in the file, where a later keyframe may stand before a frame: name the right one.
    keys = scan.key_ticks[scan.key_ticks <= first]
    begin = int(keys[-1]) if len(keys) else first
    for seek in (True, False):
        with av.open(path, metadata_errors="replace") as container:
            stream = container.streams.video[0]
            if seek:
                container.seek(begin, stream=stream, backward=True)
            for frame in container.decode(stream):
                if frame.pts is None:
                    continue
                if frame.pts in wanted:
                    image = frame.to_ndarray(width=stored_width, height=stored_height, format="rgb24")
                    # np.rot90 turns counter-clockwise.
                    wanted[frame.pts] = np.rot90(image, -turns)
                # A seek in MPEG-TS may land behind the frame it was for: then from the beginning.
                if frame.pts >= last or (seek and frame.pts > first and wanted[first] is None):
                    break
        missing = [tick for tick, image in wanted.items() if image is None]
        if not missing:
            return np.stack(list(wanted.values()))
    seconds = scan.times_seconds[np.searchsorted(scan.ticks, missing[0])]
    raise VideoError(path, f"the frame at {seconds:.3f} seconds cannot be decoded")
