"""Cold-start conversations about synthetic clips: what a main agent and its sub-agents would say.

They are written from the known events, limited to the frames that each agent really is shown. A main agent
either answers from its overview, or crops the whole video in equal windows, reads the summaries and answers
from them.

Times in a summary can all be copied from the labels of the frames: an event lasts *from* the first frame that
shows it *to* the frame after the last one that does. Where no frame follows it lasts to that last frame, and
where that is also the first, from the frame before. The answer to "when" is the same span, so that it never
needs arithmetic.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.clips import COLOURS, POSITIONS, SHAPES, Clip, Event
from data_prep.errors import InputError
from data_prep.hashing import keyed_hash
from data_prep.questions import OPTION_LETTERS, Question, questions_about, user_content
from data_prep.sampling import sampled_seconds
from data_prep.schema import FRAME_BUDGETS, MAX_PIXELS, MIN_PIXELS, sft_schema
from reward_fns.grammar import ToolCall, render_tool_call

TOOL_NAME = "crop_video"
NOTHING_VISIBLE = "nothing visible"
_WINDOW_COUNTS = (2, 3)
_ASKED_FOR = {"oe": "what", "mcq": "which", "tvg": "when"}
"""How thinking and summaries begin. It makes what follows depend on a word close by, which is what a model of a few
million parameters learns in some minutes."""
_SUBAGENT_MAX_FRAMES = 16
"""At one frame a second, as published (arXiv 2605.20342)."""


@dataclass(frozen=True)
class Sighting:
    """An event as far as some sampled frames show it.

    Attributes:
        from_seconds: time of a frame, by the rule of this module.
        until_seconds: likewise.
        num_frames: how many of the frames show it.
    """

    event: Event
    from_seconds: float
    until_seconds: float
    num_frames: int

    @property
    def text(self) -> str:
        event = self.event
        return f"{event.name} {event.position} from {self.from_seconds:.1f} to {self.until_seconds:.1f}"


@dataclass(frozen=True)
class Window:
    """A part of the video that is cropped: ``[start_seconds, end_seconds)``."""

    start_seconds: float
    end_seconds: float

    @property
    def num_frames(self) -> int:
        return max(1, min(_SUBAGENT_MAX_FRAMES, math.ceil(self.end_seconds - self.start_seconds)))


def sightings(events: Sequence[Event], times: Sequence[float]) -> list[Sighting]:
    """What frames at ``times`` (seconds, rising) show of the events, in the order of the events."""
    seen = []
    for event in events:
        shown = [i for i, time in enumerate(times) if event.start_seconds <= time < event.end_seconds]
        if not shown:
            continue
        first, until = shown[0], min(shown[-1] + 1, len(times) - 1)
        if first == until:
            first = max(first - 1, 0)
        seen.append(Sighting(event, times[first], times[until], len(shown)))
    return seen


def summary_text(question_type: str, seen: Sequence[Sighting]) -> str:
    """What a sub-agent says of its window."""
    facts = "; ".join(sighting.text for sighting in seen) or NOTHING_VISIBLE
    return f"{_ASKED_FOR[question_type]}: {facts}"


def equal_windows(duration_seconds: float, count: int) -> list[Window]:
    """``count`` windows that cover the video, with bounds of one decimal."""
    # Rounded down at the end: a window may not go past the video.
    bounds = [round(duration_seconds * i / count, 1) for i in range(count)]
    bounds.append(math.floor(duration_seconds * 10 + 1e-6) / 10)
    return [Window(start, end) for start, end in itertools.pairwise(bounds)]


def _times(clip: Clip, num_frames: int, window: Window | None = None) -> list[float]:
    start, end = (window.start_seconds, window.end_seconds) if window else (0.0, None)
    return sampled_seconds(clip.num_frames, clip.duration_seconds, num_frames, start, end)


def _find(seen: Sequence[Sighting], event: Event) -> Sighting | None:
    """The event in one or several windows' sightings, joined."""
    parts = [sighting for sighting in seen if sighting.event == event]
    if not parts:
        return None
    num_frames = sum(part.num_frames for part in parts)
    return Sighting(event, parts[0].from_seconds, parts[-1].until_seconds, num_frames)


def _thinking(question: Question, seen: Sighting) -> str:
    asked_for = _ASKED_FOR[question.question_type]
    if question.options is None:
        return f"{asked_for}: {seen.text}"
    letter = OPTION_LETTERS[question.options.index(seen.event.colour)]
    return f"{asked_for}: {seen.text}. {letter}. {seen.event.colour}"


def _answer(question: Question, seen: Sighting) -> str:
    if question.question_type == "tvg":
        return f"[{seen.from_seconds:.1f}, {seen.until_seconds:.1f}]"
    return question.answer


def _final_turn(question: Question, seen: Sighting) -> dict[str, str]:
    text = f"<think>\n{_thinking(question, seen)}</think><answer>{_answer(question, seen)}</answer>"
    return {"role": "assistant", "content": text}


def _calling_turn(question_type: str, windows: Sequence[Window]) -> dict[str, str]:
    calls = [
        ToolCall(TOOL_NAME, {"start_time": window.start_seconds, "end_time": window.end_seconds}) for window in windows
    ]
    rendered = "\n".join(render_tool_call(call) for call in calls)
    thinking = f"{_ASKED_FOR[question_type]}: watch {len(windows)} parts"
    return {"role": "assistant", "content": f"<think>\n{thinking}</think>\n{rendered}"}


def _row(
    agent: str,
    question: Question,
    clip: Clip,
    num_frames: int,
    window: Window | None,
    messages: list[dict[str, str]],
) -> dict[str, Any]:
    video = {
        "video": clip.video,
        "nframes": num_frames,
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "start_seconds": window.start_seconds if window else None,
        "end_seconds": window.end_seconds if window else None,
    }
    return {"agent": agent, "question_id": question.question_id, "videos": [video], "messages": messages}


def _direct_rows(
    clip: Clip, question: Question, frame_budgets: Sequence[int], rng: random.Random
) -> list[dict[str, Any]] | None:
    """A main agent that answers from its overview; none where no budget's frames show the event.

    "When" is answered from two frames or more: one frame bounds an event on neither side.
    """
    least = 2 if question.question_type == "tvg" else 1
    for num_frames in rng.sample(frame_budgets, len(frame_budgets)):
        seen = _find(sightings(clip.events, _times(clip, num_frames)), question.event)
        if seen is not None and seen.num_frames >= least:
            user = {"role": "user", "content": user_content(question.text, question.options)}
            return [_row("main", question, clip, num_frames, None, [user, _final_turn(question, seen)])]
    return None


def _tool_rows(
    clip: Clip, question: Question, frame_budgets: Sequence[int], rng: random.Random
) -> list[dict[str, Any]] | None:
    """A main agent that crops, and one of its sub-agents; none where no windows show the event."""
    num_frames = rng.choice(frame_budgets)
    for count in rng.sample(_WINDOW_COUNTS, len(_WINDOW_COUNTS)):
        windows = equal_windows(clip.duration_seconds, count)
        seen = [sightings(clip.events, _times(clip, window.num_frames, window)) for window in windows]
        wanted = _find([sighting for part in seen for sighting in part], question.event)
        if wanted is None:
            continue
        summaries = [summary_text(question.question_type, part) for part in seen]
        main = _row(
            "main",
            question,
            clip,
            num_frames,
            None,
            [
                {"role": "user", "content": user_content(question.text, question.options)},
                _calling_turn(question.question_type, windows),
                *({"role": "tool", "content": summary} for summary in summaries),
                _final_turn(question, wanted),
            ],
        )
        asked = {"role": "user", "content": user_content(question.text, None)}
        window, summary = rng.choice(list(zip(windows, summaries, strict=True)))
        said = {"role": "assistant", "content": summary}
        return [main, _row("subagent", question, clip, window.num_frames, window, [asked, said])]
    return None


def cold_start_rows(
    asked: Sequence[tuple[Clip, Question]],
    num_conversations: int,
    tool_share: float,
    seed: int,
    frame_budgets: Sequence[int] = FRAME_BUDGETS,
) -> list[dict[str, Any]]:
    """Rows of ``sft_schema``: ``num_conversations`` of a main agent, and a sub-agent's for each that crops, shuffled.

    Args:
        asked: the questions, taken in turn as often as needed, each time with a frame budget and windows of
            its own.
        tool_share: share of main conversations with calls, in [0, 1]; the others are answered from the
            overview, and only where its frames show the event.

    Raises:
        InputError: the share is out of range, or no question can be answered in the way asked for.
    """
    if not 0.0 <= tool_share <= 1.0:
        raise InputError(f"tool share is {tool_share}; it must be in [0, 1]")
    rows: list[dict[str, Any]] = []
    turn = 0
    for number in range(num_conversations):
        with_calls = math.floor((number + 1) * tool_share + 1e-9) > math.floor(number * tool_share + 1e-9)
        make = _tool_rows if with_calls else _direct_rows
        for _ in range(len(asked)):
            clip, question = asked[turn % len(asked)]
            rng = random.Random(keyed_hash(seed, "transcript", turn))
            turn += 1
            made = make(clip, question, frame_budgets, rng)
            if made is not None:
                break
        else:
            raise InputError("the events are too short for the frames: none of the questions can be answered")
        rows.extend(made)
    random.Random(keyed_hash(seed, "transcript order")).shuffle(rows)
    return rows


def write_cold_start(rows: list[dict[str, Any]], output: Path) -> Path:
    """Writes the rows to ``sft-00000.parquet`` in ``output``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = output / "sft-00000.parquet"
    unfinished = path.with_suffix(".part")
    pq.write_table(pa.Table.from_pylist(rows, schema=sft_schema()), unfinished)
    unfinished.replace(path)
    return path


def vocabulary_texts() -> list[str]:
    """Sample sentences of every template, the same each time: the corpus of a tokenizer for these texts."""
    return list(_vocabulary())


def _vocabulary() -> Iterator[str]:
    rng = random.Random(keyed_hash(0, "vocabulary"))
    for question_type in _ASKED_FOR:
        yield summary_text(question_type, [])
    for question_type, count in itertools.product(_ASKED_FOR, _WINDOW_COUNTS):
        yield _calling_turn(question_type, equal_windows(97.5, count))["content"]
    before: list[Sighting] = []
    for colour, shape, position in itertools.product(COLOURS, SHAPES, POSITIONS):
        start = rng.randrange(1000) / 10
        event = Event(colour, shape, position, start, start + 3.0)
        seen = Sighting(event, start + 0.2, start + 3.1, 3)
        for question in questions_about(event, rng):
            yield user_content(question.text, question.options)
            yield _final_turn(question, seen)["content"]
        yield summary_text("oe", [*before, seen])
        before = [seen]
