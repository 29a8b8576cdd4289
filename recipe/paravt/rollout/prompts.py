"""Every prompt of the recipe, and how frames and summaries stand in them.

The wording is this project's own (the paper prints no prompts that could be reused). One place, because the
agent loop, the cold start and the tiny model's tokenizer must agree on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_prep.schema import VIDEO_PLACEHOLDER, frame_label

_MAIN_COMMON = (
    "You answer a question about a video. You see some frames of it, each after its time in seconds. "
    "Think first, between <think> and </think>. "
)
_MAIN_CALLS = {
    "parallel": (
        "When the frames do not show enough, call crop_video on every part that may matter, all in one turn: "
        "the parts are watched at the same time and each comes back as a short text. "
    ),
    "sequential": (
        "When the frames do not show enough, call crop_video on the part that may matter, one call in a turn: "
        "the part is watched and comes back as a short text. "
    ),
}
_MAIN_ANSWER = "When you know the answer, write it between <answer> and </answer>."

SUBAGENT_SYSTEM = (
    "You watch one part of a video for somebody who cannot see it. You see frames of that part, each after its "
    "time in seconds. Say in a few words what they show and when."
)


def main_system_prompt(dispatch: str) -> str:
    """The main agent's system message; ``dispatch`` is ``parallel`` or ``sequential``."""
    if dispatch not in _MAIN_CALLS:
        raise ValueError(f"dispatch is {dispatch!r}; it must be one of {sorted(_MAIN_CALLS)}")
    return _MAIN_COMMON + _MAIN_CALLS[dispatch] + _MAIN_ANSWER


def frames_content(timestamps_seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Message items for frames sent as images: for each frame its time, then an image slot."""
    items: list[dict[str, Any]] = []
    for seconds in timestamps_seconds:
        items.append({"type": "text", "text": frame_label(seconds)})
        items.append({"type": "image"})
    return items


def user_message(text: str, timestamps_seconds: Sequence[float]) -> dict[str, Any]:
    """A user message with the frames in the place of ``<video>`` (before the text where there is none).

    Raises:
        ValueError: the text holds the placeholder more than once.
    """
    before, *rest = text.split(VIDEO_PLACEHOLDER)
    if len(rest) > 1:
        raise ValueError(f"one {VIDEO_PLACEHOLDER} in a question at most, found {len(rest)}: {text[:200]!r}")
    after = rest[0] if rest else before
    items = frames_content(timestamps_seconds)
    if rest and before.strip():
        items.insert(0, {"type": "text", "text": before})
    return {"role": "user", "content": [*items, {"type": "text", "text": after}]}


def main_messages(question: str, timestamps_seconds: Sequence[float], dispatch: str) -> list[dict[str, Any]]:
    """The main agent's first messages: system, then the overview frames with the question."""
    return [
        {"role": "system", "content": main_system_prompt(dispatch)},
        user_message(question, timestamps_seconds),
    ]


def subagent_messages(question: str | None, timestamps_seconds: Sequence[float]) -> list[dict[str, Any]]:
    """A sub-agent's messages: its frames, and the question unless it is to watch without one."""
    text = question.replace(VIDEO_PLACEHOLDER, "").strip() if question else "What do the frames show?"
    return [
        {"role": "system", "content": SUBAGENT_SYSTEM},
        user_message(f"{VIDEO_PLACEHOLDER}\n{text}", timestamps_seconds),
    ]


def tool_message(text: str) -> dict[str, Any]:
    """A tool response. Closing tags and special tokens inside are broken up: a summary cannot end its own block."""
    return {"role": "tool", "content": text.replace("</tool_response>", "</ tool_response>").replace("<|", "< |")}


def corpus() -> list[str]:
    """Every fixed sentence above, for the tiny model's tokenizer."""
    return [
        *(main_system_prompt(dispatch) for dispatch in sorted(_MAIN_CALLS)),
        SUBAGENT_SYSTEM,
        "What do the frames show?",
        *(frame_label(tenth / 10) for tenth in range(0, 1200, 7)),
    ]
