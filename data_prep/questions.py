"""Questions about an event, and how a question stands in a user message."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data_prep.clips import COLOURS, Event
from data_prep.schema import VIDEO_PLACEHOLDER

OPTION_LETTERS = string.ascii_uppercase
SYNTHETIC_QUESTION_TYPES = ("oe", "mcq", "tvg")
_NUM_OPTIONS = 4


def user_content(question: str, options: Sequence[str] | None) -> str:
    """The text of a row's user message: the video, the question and a line for each option."""
    lines = [VIDEO_PLACEHOLDER, question]
    lines += [f"{letter}. {option}" for letter, option in zip(OPTION_LETTERS, options or (), strict=False)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Question:
    """A question about one event of a clip, with its answer."""

    question_id: str
    question_type: str
    event: Event
    text: str
    answer: str
    options: tuple[str, ...] | None = None


def ask(question_id: str, question_type: str, event: Event, rng: random.Random) -> Question:
    """A question of a type (``oe``, ``mcq`` or ``tvg``); the options' order is drawn from ``rng``."""
    if question_type == "oe":
        text = f"What appears in the {event.position}?"
        return Question(question_id, question_type, event, text, event.name)
    if question_type == "mcq":
        text = f"What colour is the shape in the {event.position}?"
        wrong = rng.sample([colour for colour in COLOURS if colour != event.colour], _NUM_OPTIONS - 1)
        place = rng.randrange(_NUM_OPTIONS)
        options = (*wrong[:place], event.colour, *wrong[place:])
        return Question(question_id, question_type, event, text, OPTION_LETTERS[place], options)
    if question_type == "tvg":
        text = f"When is the {event.name} visible? Answer as [start, end] in seconds."
        answer = f"[{event.start_seconds:.1f}, {event.end_seconds:.1f}]"
        return Question(question_id, question_type, event, text, answer)
    raise ValueError(f"question type is {question_type!r}; it must be one of {SYNTHETIC_QUESTION_TYPES}")


def questions_about(event: Event, rng: random.Random) -> Iterable[Question]:
    """One question of each type."""
    return [ask("", kind, event, rng) for kind in SYNTHETIC_QUESTION_TYPES]
