"""Pictures and files of the synthetic clips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.clips import COLOURS, SHAPES, Clip

if TYPE_CHECKING:
    import numpy as np

# Without mbtree: on pictures this small x264 (core 165) reads memory that it has not set there, and the same
# frames come out as different bytes.
_X264_OPTIONS = {"crf": "18", "preset": "veryfast", "x264-params": "mbtree=0"}
_KEYFRAME_SECONDS = 4


def frame_images(clip: Clip, noise_seed: int) -> np.ndarray:
    """Every frame of a clip.

    Shape: uint8 ``[num_frames, height, width, 3]``, RGB.
    """
    import numpy as np

    images = _background(clip, np.random.default_rng(noise_seed))
    times = np.arange(clip.num_frames) / float(clip.fps)
    for event in clip.events:
        rows, columns = _quadrant(clip, event.position)
        mask = _shape_mask(event.shape, clip.height // 2, clip.width // 2)
        visible = (event.start_seconds <= times) & (times < event.end_seconds)
        part = images[visible, rows, columns]
        part[:, mask] = COLOURS[event.colour]
        images[visible, rows, columns] = part
    return images


def _background(clip: Clip, rng: np.random.Generator) -> np.ndarray:
    """Dark waves that drift slowly, one in each colour channel, with noise on top."""
    import numpy as np

    phase, tilt, drift = (rng.uniform(-1.0, 1.0, 3).astype(np.float32) for _ in range(3))
    y = np.linspace(0.0, 1.0, clip.height, dtype=np.float32)[:, None, None]
    x = np.linspace(0.0, 1.0, clip.width, dtype=np.float32)[None, :, None]
    seconds = (np.arange(clip.num_frames, dtype=np.float32) / np.float32(clip.fps))[:, None, None, None]
    here = np.float32(2 * np.pi) * (phase + tilt * x + (1 - np.abs(tilt)) * y)
    now = np.float32(2 * np.pi * 0.03) * drift * seconds
    # sin(here + now), without a sine for every pixel of every frame.
    wave = np.sin(here) * np.cos(now) + np.cos(here) * np.sin(now)
    noise = rng.integers(-7, 8, (clip.num_frames, clip.height, clip.width, 1), dtype=np.int8)
    return (28.0 + 12.0 * wave + noise).astype(np.uint8)


def _quadrant(clip: Clip, position: str) -> tuple[slice, slice]:
    vertical, horizontal = position.split()
    top = 0 if vertical == "top" else clip.height // 2
    left = 0 if horizontal == "left" else clip.width // 2
    return slice(top, top + clip.height // 2), slice(left, left + clip.width // 2)


def _shape_mask(shape: str, height: int, width: int) -> np.ndarray:
    """Which pixels of a quadrant a shape fills.

    Shape: bool ``[height, width]``.
    """
    import numpy as np

    v = ((np.arange(height) + 0.5) / height * 2 - 1)[:, None]
    u = ((np.arange(width) + 0.5) / width * 2 - 1)[None, :]
    if shape == "circle":
        return u**2 + v**2 <= 0.92**2
    if shape == "square":
        return np.maximum(np.abs(u), np.abs(v)) <= 0.86
    if shape == "triangle":
        return (np.abs(v) <= 0.92) & (np.abs(u) <= (v + 0.92) / 1.84)
    raise ValueError(f"shape is {shape!r}; it must be one of {SHAPES}")


def write_clip(clip: Clip, path: Path, noise_seed: int) -> None:
    """Encodes a clip as H.264 (libx264, yuv420p) in an MP4 file."""
    import av

    # Whole files only under their name, so that an interrupted run leaves none that is cut short.
    unfinished = path.with_suffix(".part")
    with av.open(str(unfinished), "w", format="mp4") as container:
        # x264's output depends on its number of threads.
        stream: Any = container.add_stream("libx264", rate=clip.fps, options=dict(_X264_OPTIONS))
        stream.width, stream.height, stream.pix_fmt = clip.width, clip.height, "yuv420p"
        stream.thread_count = 1
        stream.gop_size = max(1, round(_KEYFRAME_SECONDS * clip.fps))
        for image in frame_images(clip, noise_seed):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    unfinished.replace(path)
