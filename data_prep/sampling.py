"""Times of sampled frames, from a clip's numbers alone: nothing is decoded."""

from __future__ import annotations

import math


def sampled_seconds(
    num_video_frames: int,
    duration_seconds: float,
    num_frames: int,
    start_seconds: float = 0.0,
    end_seconds: float | None = None,
) -> list[float]:
    """Times of the frames that ``paravt_tools.read_frames`` gives, for a constant frame rate from time 0.

    The window ``[start_seconds, end_seconds)`` is cut into ``num_frames`` equal parts, and the frame on show
    in the middle of each is taken, each frame once.

    Returns:
        At most ``num_frames`` times in seconds, rising.
    """
    end_seconds = duration_seconds if end_seconds is None else min(end_seconds, duration_seconds)
    fps = num_video_frames / duration_seconds
    part = (end_seconds - start_seconds) / num_frames
    # The small term keeps a middle that falls on a frame's own time from landing on the frame before it.
    numbers = {math.floor((start_seconds + (i + 0.5) * part) * fps + 1e-6) for i in range(num_frames)}
    return [number / fps for number in sorted(numbers)]
