"""The size at which a frame is decoded, so that the model's processor has nothing left to resize."""

from __future__ import annotations

import functools
import math

SIDE_MULTIPLE = 32
"""Both sides are multiples of it. Qwen3-VL: patches of 16 pixels, merged 2x2."""

MAX_ASPECT_RATIO = 200
"""Longest side over shortest; above it ``smart_resize`` of transformers' ``qwen2_vl`` refuses an image."""


@functools.lru_cache(maxsize=4096)
def resized_size(height: int, width: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Height and width, in pixels, that Qwen3-VL's processor would resize a frame to and then leaves alone.

    It is ``smart_resize`` of transformers' ``qwen2_vl`` with factor 32, except where that refuses a shape
    or gives one outside the limits: then the size within them whose aspect ratio is nearest, on a log scale.

    Args:
        height, width: of the frame, at least 1.
        min_pixels, max_pixels: limits of height x width, both included; ``max_pixels`` is at least 32 x 32.

    Raises:
        ValueError: a size or a limit outside these ranges.
    """
    if height < 1 or width < 1:
        raise ValueError(f"the frame is {width}x{height} (width x height); both must be at least 1")
    if max_pixels < max(min_pixels, SIDE_MULTIPLE**2):
        raise ValueError(
            f"min_pixels is {min_pixels} and max_pixels is {max_pixels}; max_pixels must be at least "
            f"min_pixels and {SIDE_MULTIPLE**2}"
        )
    size = _smart_resize(height, width, min_pixels, max_pixels)
    return size if _is_kept(*size, min_pixels, max_pixels) else _nearest(height, width, min_pixels, max_pixels)


def _smart_resize(height: int, width: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    # Multiplied and divided in the order of transformers: another order rounds other sizes at the limits.
    factor = SIDE_MULTIPLE
    new_height = max(factor, round(height / factor) * factor)
    new_width = max(factor, round(width / factor) * factor)
    if new_height * new_width > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_height, new_width


def _is_kept(height: int, width: int, min_pixels: int, max_pixels: int) -> bool:
    """Whether the processor leaves this size alone."""
    ratio = max(height, width) / min(height, width)
    return min_pixels <= height * width <= max_pixels and ratio <= MAX_ASPECT_RATIO


def _nearest(height: int, width: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size within the limits with the nearest aspect ratio; the largest of those.

    Where no multiples of 32 lie between the limits, ``min_pixels`` gives way.
    """
    block = SIDE_MULTIPLE**2
    most = max_pixels // block
    fewest = math.ceil(min_pixels / block)
    wanted = math.log(height / width)
    best: tuple[float, int, int, int] | None = None
    for rows in range(1, most + 1):
        low = max(1, math.ceil(fewest / rows), math.ceil(rows / MAX_ASPECT_RATIO))
        high = min(most // rows, rows * MAX_ASPECT_RATIO)
        if low > high:
            continue
        # The best number of columns for these rows lies beside the one with the very ratio, or at a bound.
        ideal = rows * width / height
        for columns in {min(max(near, low), high) for near in (math.floor(ideal), math.ceil(ideal))}:
            distance = abs(math.log(rows / columns) - wanted)
            best = min(best or (math.inf, 0, 0, 0), (distance, -rows * columns, rows, columns))
    if best is None:
        return _nearest(height, width, 0, max_pixels)
    return best[2] * SIDE_MULTIPLE, best[3] * SIDE_MULTIPLE
