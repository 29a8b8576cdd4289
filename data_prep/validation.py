"""From a record of an annotation file to a checked annotation, or to the reason why not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_prep.errors import Rejection
from data_prep.hashing import keyed_hash
from data_prep.questions import OPTION_LETTERS
from data_prep.schema import VIDEO_PLACEHOLDER
from data_prep.videos import VideoFacts
from reward_fns.score import QUESTION_TYPES

FIELDS = (
    "video",
    "question",
    "answer",
    "question_type",
    "options",
    "id",
    "duration_seconds",
    "width",
    "height",
    "num_frames",
    "data_source",
)
"""What is read of a record; other fields are counted in the manifest as ignored."""

_REQUIRED = ("video", "question", "answer", "question_type")
_SPECIAL_TOKEN = re.compile(r"<\|[^|<>\s]+\|>")
_OPTION_LABEL = re.compile(r"\(?([A-Z])[.):]\s+")


@dataclass(frozen=True)
class Annotation:
    """A question about one video. All texts are stripped.

    Attributes:
        video: path as it stands in the file.
        options: without their letters; none unless the question is multiple choice.
    """

    question_id: str
    data_source: str
    video: str
    question: str
    question_type: str
    answer: str
    options: tuple[str, ...] | None
    facts: VideoFacts


def parse_annotation(fields: Any, default_data_source: str) -> Annotation:
    """Reads the fields of a record.

    Raises:
        Rejection: a field is missing, or its type or value cannot be used.
    """
    if not isinstance(fields, Mapping):
        raise Rejection("wrong_type", f"an annotation is an object with fields, this is {_shown(fields)}")
    present = {name: fields[name] for name in FIELDS if not _blank(fields.get(name))}
    missing = [name for name in _REQUIRED if name not in present]
    if missing:
        found = ", ".join(map(str, fields)) or "nothing"
        raise Rejection("missing_field", f"no {', '.join(missing)}; there is {found}")
    video = _video(present["video"])
    question_type = _text("question_type", present["question_type"])
    if question_type not in QUESTION_TYPES:
        raise Rejection("unknown_question_type", f"{question_type!r} is none of {', '.join(QUESTION_TYPES)}")
    question = _question(_text("question", present["question"]))
    answer = _answer(question_type, present["answer"])
    options = _options(question_type, present.get("options"))
    _refuse_special_tokens(question, *(options or ()))
    return Annotation(
        question_id=_question_id(present.get("id"), video, question_type, question, options),
        data_source=_text("data_source", present.get("data_source", default_data_source)),
        video=video,
        question=question,
        question_type=question_type,
        answer=answer,
        options=options,
        facts=VideoFacts(
            duration_seconds=_positive("duration_seconds", present.get("duration_seconds")),
            width=_whole("width", present.get("width")),
            height=_whole("height", present.get("height")),
            num_frames=_whole("num_frames", present.get("num_frames")),
        ),
    )


def content_key(annotation: Annotation, video: str) -> int:
    """The same for two annotations that ask the same of one video, whatever their ids and answers."""
    options = json.dumps(annotation.options)
    return keyed_hash(0, "content", video, annotation.question_type, annotation.question, options)


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 200 else text[:200] + '…'}"


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Rejection("wrong_type", f"{name} is a text, this is {_shown(value)}")
    return value.strip()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _video(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if len(value) > 1:
            raise Rejection("several_videos", f"one video a question, this has {len(value)}")
        if not value:
            raise Rejection("missing_field", "video is an empty list")
        value = value[0]
    return _text("video", value)


def _question(text: str) -> str:
    if text.count(VIDEO_PLACEHOLDER) > 1:
        raise Rejection(
            "several_videos", f"the question holds {VIDEO_PLACEHOLDER} {text.count(VIDEO_PLACEHOLDER)} times"
        )
    # Where the video goes is decided here: before the question.
    question = text.replace(VIDEO_PLACEHOLDER, "").strip()
    if not question:
        raise Rejection("missing_field", f"the question is nothing but {VIDEO_PLACEHOLDER}")
    return question


def _refuse_special_tokens(*texts: str) -> None:
    for text in texts:
        found = _SPECIAL_TOKEN.search(text)
        if found or VIDEO_PLACEHOLDER in text:
            token = found.group() if found else VIDEO_PLACEHOLDER
            raise Rejection("special_token", f"{token} in {text[:200]!r} would be read as a token of the model")


def _answer(question_type: str, value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if question_type == "oe" and _is_number(value):
        return str(value)
    if question_type == "tvg" and isinstance(value, Sequence) and not isinstance(value, bytes):
        spans = [value] if len(value) == 2 and all(map(_is_number, value)) else value
        if all(_is_pair(span) for span in spans) and spans:
            return ", ".join(f"[{float(start)}, {float(end)}]" for start, end in spans)
    kinds = {
        "mcq": "a letter or an option's text",
        "oe": "a text or a number",
        "tvg": "a text or [start, end]",
    }
    raise Rejection("wrong_type", f"the answer to {question_type} is {kinds[question_type]}, this is {_shown(value)}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value))


def _options(question_type: str, value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        # A cell of a CSV file.
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise Rejection("wrong_type", f"options as a text must be a JSON list: {error}") from error
    if value is None or (question_type != "mcq" and isinstance(value, Sequence) and not value):
        if question_type == "mcq":
            raise Rejection("missing_field", "multiple choice without options")
        return None
    if not isinstance(value, Sequence):
        raise Rejection("wrong_type", f"options is a list, this is {_shown(value)}")
    if question_type != "mcq":
        raise Rejection("bad_value", f"a question of type {question_type} with options")
    if not all(isinstance(option, str) or _is_number(option) for option in value):
        raise Rejection("wrong_type", f"options are texts, these are {_shown(value)}")
    options = _without_letters([str(option).strip() for option in value])
    if not 2 <= len(options) <= len(OPTION_LETTERS):
        raise Rejection("bad_value", f"{len(options)} options; 2 to {len(OPTION_LETTERS)} are possible")
    if len(set(options)) < len(options) or not all(options):
        raise Rejection("bad_value", f"options are empty or equal: {_shown(options)}")
    return tuple(options)


def _without_letters(options: list[str]) -> list[str]:
    """The options without their letters (``A. ``, ``(A) ``), where each begins with its own."""
    matches = [_OPTION_LABEL.match(option) for option in options]
    if all(match and match.group(1) == letter for match, letter in zip(matches, OPTION_LETTERS, strict=False)):
        return [option[match.end() :] for option, match in zip(options, matches, strict=True) if match]
    return options


def _question_id(value: Any, video: str, question_type: str, question: str, options: tuple[str, ...] | None) -> str:
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return f"{keyed_hash(0, 'id', video, question_type, question, json.dumps(options)):016x}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Rejection("wrong_type", f"id is a text or a whole number, this is {_shown(value)}")


def _positive(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not (_is_number(value) or isinstance(value, str)):
        raise Rejection("wrong_type", f"{name} is a number, this is {_shown(value)}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise Rejection("wrong_type", f"{name} is a number, this is {_shown(value)}") from None
    if not (math.isfinite(number) and number > 0):
        raise Rejection("bad_value", f"{name} is {value}; it must be above 0")
    return number


def _whole(name: str, value: Any) -> int | None:
    number = _positive(name, value)
    if number is not None and number != int(number):
        raise Rejection("bad_value", f"{name} is {value}; it must be a whole number")
    return None if number is None else int(number)
