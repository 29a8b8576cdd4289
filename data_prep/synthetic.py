"""Synthetic videos with questions whose answers are known: coloured shapes that appear for some seconds.

A clip is a dark, slightly noisy background. Two to four times a coloured shape fills one quadrant of the
picture for 2 to 4 seconds. At the default 64x64 pixels a frame is 2x2 visual tokens of Qwen3-VL, so that a
quadrant is one token: small enough for a model of a few million parameters to learn from nothing on a CPU.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from data_prep.clips import COLOURS, POSITIONS, SHAPES, Clip, Event
from data_prep.errors import InputError
from data_prep.hashing import keyed_hash
from data_prep.questions import SYNTHETIC_QUESTION_TYPES, Question, ask
from data_prep.rendering import write_clip
from data_prep.transcripts import vocabulary_texts

__all__ = [
    "SyntheticSettings",
    "annotation",
    "plan_clip",
    "plan_questions",
    "vocabulary_texts",
    "write_dataset",
]

DATA_SOURCE = "synthetic"
MIN_NUM_FRAMES = 64
"""The largest frame budget: every clip has as many frames as any row asks for."""

_GRID_SECONDS = 0.5
_EVENTS_PER_CLIP = (2, 3, 4)
_EVENT_GRID_STEPS = (4, 5, 6, 7, 8)
"""Event lengths on the grid: 2.0 to 4.0 seconds."""


@dataclass(frozen=True)
class SyntheticSettings:
    """What to make.

    Raises:
        InputError: a value is out of its range; the message names it.
    """

    num_videos: int = 100
    seed: int = 0
    min_duration_seconds: float = 30.0
    max_duration_seconds: float = 120.0
    width: int = 64
    height: int = 64
    fps: Fraction = Fraction(4)
    questions_per_video: int = 3

    def __post_init__(self) -> None:
        if self.num_videos < 1:
            raise InputError(f"videos is {self.num_videos}; at least 1 is needed")
        if not 0 < self.min_duration_seconds <= self.max_duration_seconds < math.inf:
            raise InputError(
                f"durations are {self.min_duration_seconds} to {self.max_duration_seconds} s; "
                "they must be above 0 and in order"
            )
        if self.fps <= 0:
            raise InputError(f"fps is {self.fps}; it must be above 0")
        if self.min_duration_seconds * self.fps < MIN_NUM_FRAMES:
            raise InputError(
                f"{self.min_duration_seconds} s at {float(self.fps):g} fps are fewer than {MIN_NUM_FRAMES} "
                f"frames, the largest budget; {float(MIN_NUM_FRAMES / self.fps):g} s or a higher fps would do"
            )
        least = min(_EVENTS_PER_CLIP) * (max(_EVENT_GRID_STEPS) + 1) * _GRID_SECONDS
        if self.min_duration_seconds < least:
            raise InputError(f"min duration is {self.min_duration_seconds} s; two events may need {least:g} s")
        if math.ceil(self.min_duration_seconds / _GRID_SECONDS) > self.max_duration_seconds / _GRID_SECONDS:
            raise InputError(
                f"durations are {self.min_duration_seconds} to {self.max_duration_seconds} s; "
                f"there is no multiple of {_GRID_SECONDS} s between them"
            )
        for name, size in (("width", self.width), ("height", self.height)):
            if size < 32 or size % 2:
                raise InputError(f"{name} is {size}; H.264 needs an even number, and a shape at least 32 pixels")
        # Every clip has at least this many distinct questions: each type about each event.
        most = min(_EVENTS_PER_CLIP) * len(SYNTHETIC_QUESTION_TYPES)
        if not 1 <= self.questions_per_video <= most:
            raise InputError(f"questions per video is {self.questions_per_video}; it must be 1 to {most}")


def plan_clip(settings: SyntheticSettings, index: int) -> Clip:
    """The content of clip ``index``; it depends on the settings and the index alone."""
    rng = random.Random(keyed_hash(settings.seed, "clip", index))
    grid = rng.randint(
        math.ceil(settings.min_duration_seconds / _GRID_SECONDS),
        math.floor(settings.max_duration_seconds / _GRID_SECONDS),
    )
    return Clip(
        index=index,
        # With the seed, so that the clips of two data sets are not taken for one another.
        video=f"videos/s{settings.seed}-{index:05d}.mp4",
        # Rounded up where the frame rate does not meet the grid: no event may end after the clip.
        num_frames=math.ceil(grid * Fraction(_GRID_SECONDS) * settings.fps),
        fps=settings.fps,
        width=settings.width,
        height=settings.height,
        events=_plan_events(rng, grid),
    )


def _plan_events(rng: random.Random, grid: int) -> tuple[Event, ...]:
    lengths = [rng.choice(_EVENT_GRID_STEPS) for _ in range(rng.choice(_EVENTS_PER_CLIP))]
    while sum(lengths) + len(lengths) > grid:
        lengths.pop()
    positions = rng.sample(POSITIONS, len(lengths))
    looks = rng.sample(list(itertools.product(COLOURS, SHAPES)), len(lengths))
    # A free grid step after each event keeps two of them apart; what is left over is cut at random places.
    spare = grid - sum(lengths) - len(lengths)
    cuts = sorted(rng.randint(0, spare) for _ in lengths)
    events = []
    used = 0
    for length, position, (colour, shape), cut in zip(lengths, positions, looks, cuts, strict=True):
        start = (used + cut) * _GRID_SECONDS
        events.append(Event(colour, shape, position, start, start + length * _GRID_SECONDS))
        used += length + 1
    return tuple(events)


def plan_questions(settings: SyntheticSettings, clip: Clip) -> list[Question]:
    """The questions about a clip: the types in turn, so that their shares are equal over the data set."""
    rng = random.Random(keyed_hash(settings.seed, "questions", clip.index))
    # Each type asks about the events in an order of its own, so that no question comes twice.
    orders = {kind: iter(rng.sample(clip.events, len(clip.events))) for kind in SYNTHETIC_QUESTION_TYPES}
    questions = []
    for number in range(settings.questions_per_video):
        turn = clip.index * settings.questions_per_video + number
        kind = SYNTHETIC_QUESTION_TYPES[turn % len(SYNTHETIC_QUESTION_TYPES)]
        question_id = f"synthetic-s{settings.seed}-v{clip.index:05d}-q{number}"
        questions.append(ask(question_id, kind, next(orders[kind]), rng))
    return questions


def annotation(clip: Clip, question: Question) -> dict[str, Any]:
    """A line of ``annotations.jsonl``; ``events`` is for readers of the data, ``rl`` does not use it."""
    line: dict[str, Any] = {
        "id": question.question_id,
        "data_source": DATA_SOURCE,
        "video": clip.video,
        "question": question.text,
        "question_type": question.question_type,
        "answer": question.answer,
        "duration_seconds": clip.duration_seconds,
        "width": clip.width,
        "height": clip.height,
        "num_frames": clip.num_frames,
        "events": [asdict(event) for event in clip.events],
    }
    if question.options is not None:
        line["options"] = list(question.options)
    return line


def write_dataset(settings: SyntheticSettings, output: Path, workers: int = 1) -> Iterator[Clip]:
    """Writes ``videos/*.mp4`` and ``annotations.jsonl`` into ``output``, yielding each clip once it is there.

    The same settings give the same bytes, whatever the number of worker processes.
    """
    (output / "videos").mkdir(parents=True, exist_ok=True)
    clips = (plan_clip(settings, index) for index in range(settings.num_videos))
    unfinished = output / "annotations.jsonl.part"
    with unfinished.open("w", encoding="utf-8") as file:
        for clip in _write_clips(clips, settings.seed, output, workers):
            for question in plan_questions(settings, clip):
                file.write(json.dumps(annotation(clip, question)) + "\n")
            yield clip
    unfinished.replace(output / "annotations.jsonl")


def _write_clips(clips: Iterator[Clip], seed: int, output: Path, workers: int) -> Iterator[Clip]:
    if workers == 1:
        yield from (_write_one(clip, seed, output) for clip in clips)
        return
    # spawn: a process forked from one that runs threads (a notebook, a test runner) may hang.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_write_one, clips, itertools.repeat(seed), itertools.repeat(output), chunksize=4)


def _write_one(clip: Clip, seed: int, output: Path) -> Clip:
    write_clip(clip, output / clip.video, noise_seed=keyed_hash(seed, "noise", clip.index))
    return clip
