"""What a file says of its video: size, length, and the presentation time of every frame, found without decoding.

The times come from the packets, which PyAV reads: decord counts every stream from 0, and has no times for some
containers (AVI).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paravt_tools.errors import VideoError

if TYPE_CHECKING:
    import numpy as np

_MAX_SCANS = 32
"""Files whose frame times are remembered: 8 bytes a frame twice, 3.5 MB for two hours at 30 fps. Chosen here."""

_MISSING_SECONDS = 1.0
_MISSING_SHARE = 0.05
"""A file that ends by more than both of these before its own header's duration is cut off. Chosen here: headers
count sounds and frames a little differently, by less than a second."""


@dataclass(frozen=True)
class VideoInfo:
    """A file's first video stream, as it is shown: upright.

    Attributes:
        duration_seconds: end of the last frame on the stream's own clock. Where the stream starts late, it is
            not the time between its first and its last frame.
        num_frames: frames that are shown, at least 1.
        fps: frames a second, from the first frame's begin to the last one's end.
        width, height: in pixels, after rotation.
        rotation: degrees, clockwise, by which the stored frames are turned to be upright: 0, 90, 180 or 270.
        codec: FFmpeg's name, such as ``h264``.
        start_seconds: presentation time of the first frame.
    """

    duration_seconds: float
    num_frames: int
    fps: float
    width: int
    height: int
    rotation: int
    codec: str
    start_seconds: float


@dataclass(frozen=True)
class Scan:
    """A file's frames, in the order of presentation.

    Attributes:
        times_seconds: float64 ``[num_frames]``, rising; presentation times.
        ticks: int64 ``[num_frames]``; the same in the stream's time base.
        tick_seconds: the time base.
        is_plain: whether each packet is one shown frame, as decord takes for granted.
    """

    info: VideoInfo
    times_seconds: np.ndarray
    ticks: np.ndarray
    tick_seconds: float
    is_plain: bool


def probe_video(path: str | os.PathLike[str]) -> VideoInfo:
    """What is known of the video in a file. All its packets are read, one frame is decoded.

    Raises:
        VideoError: no such file, no video in it, damaged, or cut off.
    """
    return scan_video(path).info


def scan_video(path: str | os.PathLike[str]) -> Scan:
    """``probe_video`` with the time of every frame; remembered until the file changes.

    Raises:
        VideoError: as ``probe_video``.
    """
    name = os.fspath(path)
    try:
        status = os.stat(name)
    except (OSError, ValueError) as error:
        raise VideoError(name, getattr(error, "strerror", None) or str(error)) from error
    if not os.path.isfile(name):
        raise VideoError(name, "not a regular file")
    if status.st_size == 0:
        raise VideoError(name, "the file is empty")
    return _scan(name, status.st_mtime_ns, status.st_size)


@contextmanager
def video_errors(path: str) -> Iterator[None]:
    """Turns what PyAV and decord raise for a file into ``VideoError``."""
    import av

    try:
        yield
    # decord raises RuntimeError and its subclass DECORDError; FFmpegError has OSError's text, with the path.
    except (av.FFmpegError, OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(path, " ".join(reason.split())[:200] or type(error).__name__) from error


@functools.lru_cache(maxsize=_MAX_SCANS)
def _scan(path: str, mtime_ns: int, num_bytes: int) -> Scan:
    import av

    # Bytes of a tag that are not UTF-8 are no reason to refuse a video.
    with video_errors(path), av.open(path, metadata_errors="replace") as container:
        if not container.streams.video:
            raise VideoError(path, "no video stream")
        stream = container.streams.video[0]
        packets = _Packets(path, container, stream)
    return _measured(path, packets)


class _Packets:
    """What the packets of an open file, and one decoded frame, tell."""

    def __init__(self, path: str, container: Any, stream: Any):
        self.codec: str = stream.codec_context.name
        self.tick_seconds = float(stream.time_base)
        self.average_rate = float(stream.average_rate or 0)
        self.ticks: list[int] = []
        self.last: tuple[int, int] = (-(1 << 63), 0)
        self.is_plain = True
        end_seconds = 0.0
        for packet in container.demux():
            if packet.pts is None and packet.size == 0:
                continue
            if packet.stream is stream:
                self._add(packet)
            if packet.pts is not None and packet.time_base:
                end_seconds = max(end_seconds, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        self._refuse_cut_off(path, container, stream, end_seconds)
        container.seek(0)
        frame = next(container.decode(stream), None)
        if frame is None:
            raise VideoError(path, "no frame can be decoded")
        # PyAV counts counter-clockwise. Turns that are no quarters cannot be undone without loss.
        self.rotation = -round(frame.rotation / 90) * 90 % 360
        self.width, self.height = frame.width, frame.height
        if not self.ticks or self.has_untimed:
            # Packets without times (H.264 in AVI): only the decoder knows the order of the frames.
            self.is_plain = False
            container.seek(0)
            times = [(frame.pts, frame.duration or 0) for frame in container.decode(stream) if frame.pts is not None]
            self.ticks = [pts for pts, _ in times]
            self.last = max(times, default=self.last)

    has_untimed = False

    def _add(self, packet: Any) -> None:
        if packet.is_discard:
            # Decoded for the frames after it, but cut away by the container's edit list.
            self.is_plain = False
        elif packet.pts is None:
            self.has_untimed = True
        else:
            self.ticks.append(packet.pts)
            self.last = max(self.last, (packet.pts, packet.duration or 0))

    @staticmethod
    def _refuse_cut_off(path: str, container: Any, stream: Any, end_seconds: float) -> None:
        declared = (container.duration or 0) / 1e6 + max(container.start_time or 0, 0) / 1e6
        missing = declared - end_seconds
        if missing > max(_MISSING_SECONDS, _MISSING_SHARE * declared):
            raise VideoError(path, f"cut off: its header says {declared:.2f} seconds, it has {end_seconds:.2f} seconds")


def _measured(path: str, packets: _Packets) -> Scan:
    import numpy as np

    ticks = np.unique(np.array(packets.ticks, np.int64))
    if not len(ticks):
        raise VideoError(path, "no frame has a time")
    times_seconds = ticks * packets.tick_seconds
    last_seconds = packets.last[1] * packets.tick_seconds
    if last_seconds <= 0:
        # Some containers leave the last frame without a duration: it is taken to be as long as others.
        usual = float(np.median(np.diff(times_seconds))) if len(ticks) > 1 else 0.0
        last_seconds = usual or 1 / (packets.average_rate or 1.0)
    start_seconds, duration_seconds = float(times_seconds[0]), float(times_seconds[-1] + last_seconds)
    sideways = packets.rotation in (90, 270)
    info = VideoInfo(
        duration_seconds=duration_seconds,
        num_frames=len(ticks),
        fps=len(ticks) / (duration_seconds - start_seconds),
        width=packets.height if sideways else packets.width,
        height=packets.width if sideways else packets.height,
        rotation=packets.rotation,
        codec=packets.codec,
        start_seconds=start_seconds,
    )
    times_seconds.setflags(write=False)
    ticks.setflags(write=False)
    is_plain = packets.is_plain and len(ticks) == len(packets.ticks)
    return Scan(info, times_seconds, ticks, packets.tick_seconds, is_plain)
