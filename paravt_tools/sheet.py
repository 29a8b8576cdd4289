"""A contact sheet: the frames of a window in a grid, each with its time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from paravt_tools.frames import FrameBatch

if TYPE_CHECKING:
    from PIL import Image

_MARGIN_PIXELS = 8
_CAPTION_PIXELS = 18
_BACKGROUND = (255, 255, 255)
_INK = (0, 0, 0)


def contact_sheet(batch: FrameBatch) -> Image.Image:
    """The frames of a batch, row by row from the top left, with their times in seconds under them.

    Args:
        batch: at least one frame.

    Returns:
        An RGB image of about as many rows as columns.
    """
    from PIL import Image, ImageDraw

    count, height, width, _ = batch.images.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    cell_width, cell_height = width + _MARGIN_PIXELS, height + _CAPTION_PIXELS + _MARGIN_PIXELS
    size = (columns * cell_width + _MARGIN_PIXELS, rows * cell_height + _MARGIN_PIXELS)
    sheet = Image.new("RGB", size, _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for number, (image, seconds) in enumerate(zip(batch.images, batch.timestamps_seconds, strict=True)):
        left = _MARGIN_PIXELS + number % columns * cell_width
        top = _MARGIN_PIXELS + number // columns * cell_height
        sheet.paste(Image.fromarray(image), (left, top))
        draw.text((left + width // 2, top + height + 2), f"{seconds:.2f} s", fill=_INK, anchor="ma")
    return sheet
