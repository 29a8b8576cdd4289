"""What a synthetic clip shows, apart from how it is planned, drawn or asked about."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

# Far apart in brightness or hue, so that 4:2:0 chroma and quantisation leave them distinct.
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (225, 25, 25),
    "green": (20, 170, 40),
    "blue": (40, 70, 235),
    "yellow": (240, 220, 20),
    "white": (245, 245, 245),
    "purple": (160, 35, 190),
}
"""RGB values by name."""

SHAPES = ("circle", "square", "triangle")
POSITIONS = ("top left", "top right", "bottom left", "bottom right")
"""The quadrants of the picture."""


@dataclass(frozen=True)
class Event:
    """A shape that is visible in the frames with ``start_seconds`` <= time < ``end_seconds``."""

    colour: str
    shape: str
    position: str
    start_seconds: float
    end_seconds: float

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Clip:
    """One video. Frame i is at ``i / fps`` seconds; events are in the order of their times.

    Attributes:
        video: path of the file, relative to the annotations.
    """

    index: int
    video: str
    num_frames: int
    fps: Fraction
    width: int
    height: int
    events: tuple[Event, ...]

    @property
    def duration_seconds(self) -> float:
        return float(self.num_frames / self.fps)
