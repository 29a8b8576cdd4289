"""What a file says of its video: size, length, and the presentation time of every frame.

The times come from the packets, which PyAV reads without decoding them: decord counts every stream from 0, and
has no times for some containers (AVI).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from paravt_tools.errors import VideoError

if TYPE_CHECKING:
    import numpy as np

_MAX_SCANS = 32
"""Files whose frame times are remembered: 16 bytes a frame, 3.5 MB for two hours at 30 fps. Chosen here."""

_MISSING_SECONDS = 1.0
_MISSING_SHARE = 0.05
"""A file that ends by more than both of these before its own header's duration is cut off. Chosen here: headers
count sounds and frames a little differently."""


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
        key_ticks: int64, rising; where a decoder can begin.
        tick_seconds: the time base.
        is_plain: whether each packet is one shown frame, and no frame after a keyframe in the file is shown
            before it; decord takes both for granted.
    """

    info: VideoInfo
    times_seconds: np.ndarray
    ticks: np.ndarray
    key_ticks: np.ndarray
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
    """Turns what PyAV raises for a file into ``VideoError``."""
    import av

    try:
        yield
    except (av.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(path, " ".join(reason.split())[:200] or type(error).__name__) from error


@functools.lru_cache(maxsize=_MAX_SCANS)
def _scan(path: str, mtime_ns: int, num_bytes: int) -> Scan:
    import av

    # Bytes of a tag that are not UTF-8 are no reason to refuse a video.
    with video_errors(path), av.open(path, metadata_errors="replace") as container:
        if container.format.name == "tty":
            # FFmpeg takes any *.txt for a film of a terminal.
            raise VideoError(path, "a text file")
        if not container.streams.video:
            raise VideoError(path, "no video stream")
        stream = container.streams.video[0]
        packets = _Packets(path, container, stream)
    return _measured(path, packets)


class _Packets:
    """What the packets of an open file, and one decoded frame, tell."""

    def __init__(self, path: str, container: Any, stream: Any):
        self.codec: str = stream.codec_context.name
        self.tick = Fraction(stream.time_base)
        self.average_rate = float(stream.average_rate or 0)
        self.is_plain = True
        self.key_ticks: list[int] = []
        # Presentation time and duration of each shown frame, in ticks.
        self.shown: list[tuple[int, int]] = []
        has_times, end_seconds = True, 0.0
        for packet in container.demux():
            if packet.size == 0:
                continue
            if packet.stream is stream:
                has_times &= packet.pts is not None
                self._add(packet)
            if packet.pts is not None and packet.time_base:
                end = (packet.pts + (packet.duration or 0)) * packet.time_base
                end_seconds = max(end_seconds, float(end))
        _refuse_cut_off(path, (container.duration or 0) / 1e6, end_seconds)
        container.seek(0)
        frame = next(container.decode(stream), None)
        if frame is None:
            raise VideoError(path, "no frame can be decoded")
        # PyAV counts counter-clockwise. Turns that are no quarters cannot be undone without loss.
        self.rotation = -round(frame.rotation / 90) * 90 % 360
        self.width, self.height = frame.width, frame.height
        if not has_times:
            # H.264 in AVI: only the decoder knows the order of the frames.
            container.seek(0)
            self.shown = [(frame.pts, frame.duration or 0) for frame in container.decode(stream)]
            self.shown = [(pts, duration) for pts, duration in self.shown if pts is not None]
            self.is_plain = False
        elif self.key_ticks and min(self.shown, default=(self.key_ticks[0], 0))[0] < self.key_ticks[0]:
            # A recording cut in the middle: what comes before the first keyframe cannot be decoded.
            self.shown = [(pts, duration) for pts, duration in self.shown if pts >= self.key_ticks[0]]
            self.is_plain = False

    def _add(self, packet: Any) -> None:
        if packet.pts is None:
            return
        if packet.is_keyframe:
            self.key_ticks.append(packet.pts)
        elif self.key_ticks and packet.pts < self.key_ticks[-1]:
            # An open group of pictures: such frames do not decode after a seek to their keyframe.
            self.is_plain = False
        if packet.is_discard:
            # Decoded for the frames after it, but cut away by the container's edit list.
            self.is_plain = False
        else:
            self.shown.append((packet.pts, packet.duration or 0))


def _refuse_cut_off(path: str, declared_seconds: float, end_seconds: float) -> None:
    # FFmpeg's duration leaves a late start out in some containers; counting it for all would refuse good files.
    if declared_seconds - end_seconds > max(_MISSING_SECONDS, _MISSING_SHARE * declared_seconds):
        raise VideoError(
            path, f"cut off: its header says {declared_seconds:.2f} seconds, it has {end_seconds:.2f} seconds"
        )


def _measured(path: str, packets: _Packets) -> Scan:
    import numpy as np

    if not packets.shown:
        raise VideoError(path, "no frame has a time")
    ticks = np.unique(np.array([pts for pts, _ in packets.shown], np.int64))
    last_ticks = max(packets.shown)[1]
    if last_ticks <= 0:
        # Some containers leave the last frame without a duration: it is taken to be as long as others.
        usual = float(np.median(np.diff(ticks))) if len(ticks) > 1 else 0.0
        last_ticks = round(usual or 1 / (packets.average_rate or 1.0) / packets.tick) or 1
    # Multiplied before the division, so that each time is the double nearest to the true one.
    times_seconds = ticks * packets.tick.numerator / packets.tick.denominator
    end_ticks = int(ticks[-1]) + last_ticks
    sideways = packets.rotation in (90, 270)
    info = VideoInfo(
        duration_seconds=float(end_ticks * packets.tick),
        num_frames=len(ticks),
        fps=float(len(ticks) / ((end_ticks - int(ticks[0])) * packets.tick)),
        width=packets.height if sideways else packets.width,
        height=packets.width if sideways else packets.height,
        rotation=packets.rotation,
        codec=packets.codec,
        start_seconds=float(times_seconds[0]),
    )
    times_seconds.setflags(write=False)
    ticks.setflags(write=False)
    is_plain = packets.is_plain and len(ticks) == len(packets.shown)
    key_ticks = np.unique(np.array(packets.key_ticks, np.int64))
    key_ticks.setflags(write=False)
    return Scan(info, times_seconds, ticks, key_ticks, float(packets.tick), is_plain)
