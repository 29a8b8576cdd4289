"""The assistant turns of one rollout, and how to get them from a decoded string."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reward_fns.grammar import TurnStructure, parse_turn, strip_end_of_turn

ERROR_PREFIX = "Error:"
"""How a tool response starts when the call was not executed."""

_MARKER = re.compile(r"<\|im_start\|>(\w+)[^\S\n]*\n?")
_BARE_MARKER = re.compile(r"(?:\A|(?<=\n))(system|user|tool|assistant)[^\S\n]*(?:\n|\Z)")
_OPEN_RESPONSE, _CLOSE_RESPONSE = "<tool_response>", "</tool_response>"
_MESSAGE_END = re.compile(r"<\|im_end\|>|(?=<\|im_start\|>)")


@dataclass(frozen=True)
class Turn:
    """One assistant turn.

    Attributes:
        text: the text of the turn, with what was forced at its start.
        executed: for each of its calls that parse, in order, whether a summary came back. Missing: not executed.

    Raises:
        ValueError: there are more flags than calls.
    """

    text: str
    executed: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "executed", tuple(self.executed))
        if self.executed and len(self.executed) > len(self.structure.calls):
            raise ValueError(
                f"{len(self.executed)} executed flags for {len(self.structure.calls)} calls in {self.text[:80]!r}"
            )

    @cached_property
    def structure(self) -> TurnStructure:
        """Tags, thinking, answers and calls."""
        return parse_turn(self.text)

    @classmethod
    def _of(cls, text: str, executed: tuple[bool, ...], structure: TurnStructure) -> Turn:
        """A turn whose text has been parsed already."""
        turn = object.__new__(cls)
        turn.__dict__.update(text=text, executed=executed, structure=structure)
        return turn

    def __getstate__(self) -> dict[str, object]:
        return {"text": self.text, "executed": self.executed}


@dataclass(frozen=True)
class Transcript:
    """The assistant turns of one rollout, in order.

    >>> Transcript((Turn("<think>a red car comes</think><answer>B</answer>"),)).answer
    'B'
    """

    turns: tuple[Turn, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "turns", tuple(self.turns))

    @property
    def answer(self) -> str | None:
        """The body of the last ``<answer>`` of the rollout, closed or not; none where it is empty or missing."""
        for turn in reversed(self.turns):
            if turn.structure.answers:
                return turn.structure.answers[-1].body or None
        return None

    @property
    def num_calls(self) -> int:
        """Calls that parse."""
        return sum(len(turn.structure.calls) for turn in self.turns)

    @property
    def num_executed_calls(self) -> int:
        """Calls that a summary came back for."""
        return sum(sum(turn.executed) for turn in self.turns)

    @classmethod
    def from_text(cls, solution_str: str, forced_prefix: str = "") -> Transcript:
        """Builds a transcript from a decoded multi-turn string, such as veRL's reward functions get.

        With role markers (``<|im_start|>user`` …, or the bare lines ``user`` and ``assistant`` that remain when
        special tokens were skipped) a ``<tool_response>`` in a message that is not the assistant's is real, and
        one that the model wrote is not. A bare ``user`` or ``tool`` line counts as a marker where a tool
        response follows or a line ``assistant`` comes later. Nothing in a real response can forge a turn,
        except ``</tool_response>`` itself, which a flat string cannot show.

        A string without any marker is cut at each ``<tool_response>`` that follows a call. A response that the
        model wrote itself and a real one **cannot be told apart there**.

        Responses belong to the calls of the turn before them, in order. If there are as many as calls and bad
        calls together, each bad call has its own. One that starts with ``Error:`` means: not executed.

        Args:
            forced_prefix: put before every assistant turn that lacks it; veRL's string does not hold what was
                forced.
        """
        if "<|im_start|>" in solution_str:
            parts = _split_at_markers(solution_str)
        elif _BARE_MARKER.search(solution_str):
            parts = _split_at_bare_markers(solution_str)
        else:
            parts = _split_at_responses(solution_str, forced_prefix)
        return cls(tuple(_turn(part, forced_prefix) for part in parts if part.text))

    def __len__(self) -> int:
        return len(self.turns)


def extract_answer(text: str) -> str | None:
    """The body of the last ``<answer>`` outside thinking, closed or not; none where it is missing or empty.

    >>> extract_answer("<think>maybe <answer>A</answer></think><answer>C</answer>")
    'C'
    """
    return Transcript((Turn(text),)).answer


class _Part(NamedTuple):
    """The text of an assistant turn, and the responses that followed it."""

    text: str
    responses: list[str]


def _turn(part: _Part, forced_prefix: str) -> Turn:
    text = part.text
    if forced_prefix and not text.startswith(forced_prefix.rstrip()):
        text = forced_prefix + text
    structure = parse_turn(text)
    calls, errors = structure.calls, structure.errors
    if not part.responses or not calls:
        return Turn._of(text, (), structure)
    done = [not response.lstrip().startswith(ERROR_PREFIX) for response in part.responses]
    if errors and len(done) == len(calls) + len(errors):
        spans = sorted([(call.span, True) for call in calls] + [(error.span, False) for error in errors])
        done = [flag for flag, (_, is_call) in zip(done, spans, strict=True) if is_call]
    return Turn._of(text, tuple(done[: len(calls)]), structure)


def _read_responses(text: str, position: int) -> tuple[list[str], int]:
    """Adjacent tool responses from ``position`` on, and where they end; an unclosed one takes all that follows."""
    responses: list[str] = []
    while True:
        start = position
        while text[start : start + 1].isspace():
            start += 1
        if not text.startswith(_OPEN_RESPONSE, start):
            return responses, position
        body = start + len(_OPEN_RESPONSE)
        end = text.find(_CLOSE_RESPONSE, body)
        if end < 0:
            return [*responses, text[body:]], len(text)
        responses.append(text[body:end])
        position = end + len(_CLOSE_RESPONSE)


class _Parts:
    """Collects turns; responses go to the last one."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []

    def add_turn(self, text: str) -> None:
        if text := strip_end_of_turn(text):
            self.parts.append(_Part(text, []))

    def add_responses(self, responses: list[str]) -> None:
        if self.parts:
            self.parts[-1].responses.extend(responses)


def _split_at_markers(text: str) -> list[_Part]:
    parts = _Parts()
    position, role = 0, "assistant"
    while position < len(text):
        if role == "assistant":
            marker = _MARKER.search(text, position)
            end = marker.start() if marker else len(text)
            # What stands between the end of a turn and the next message is white space of the template.
            parts.add_turn(text[position:end])
        else:
            end = position
            while True:
                responses, end = _read_responses(text, end)
                parts.add_responses(responses)
                boundary = _MESSAGE_END.search(text, end)
                stop = boundary.start() if boundary else len(text)
                inner = text.find(_OPEN_RESPONSE, end, stop)
                if inner < 0:
                    break
                end = inner
            marker = _MARKER.search(text, stop)
        if marker is None:
            break
        position, role = marker.end(), marker[1]
    return parts.parts


def _split_at_bare_markers(text: str) -> list[_Part]:
    parts = _Parts()
    last_assistant = max((m.start() for m in _BARE_MARKER.finditer(text) if m[1] == "assistant"), default=-1)
    position, role = 0, "assistant"
    while position < len(text):
        search_from = position
        marker = None
        if role != "assistant":
            while True:
                responses, search_from = _read_responses(text, search_from)
                parts.add_responses(responses)
                marker = _next_marker(text, search_from, ("assistant",))
                inner = text.find(_OPEN_RESPONSE, search_from, marker.start() if marker else len(text))
                if inner < 0:
                    break
                search_from = inner
        else:
            for candidate in _BARE_MARKER.finditer(text, position):
                followed = text.startswith(_OPEN_RESPONSE, _skip_space(text, candidate.end()))
                if followed or last_assistant > candidate.start() or candidate[1] == "assistant":
                    marker = candidate
                    break
            parts.add_turn(text[position : marker.start() if marker else len(text)])
        if marker is None:
            break
        position, role = marker.end(), marker[1]
    return parts.parts


def _next_marker(text: str, position: int, roles: tuple[str, ...]) -> re.Match[str] | None:
    return next((m for m in _BARE_MARKER.finditer(text, position) if m[1] in roles), None)


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def _split_at_responses(text: str, forced_prefix: str) -> list[_Part]:
    parts = _Parts()
    turn_start, chunk_start, has_call = 0, 0, False
    while True:
        found = text.find(_OPEN_RESPONSE, chunk_start)
        if found < 0:
            parts.add_turn(text[turn_start:])
            return parts.parts
        chunk = text[chunk_start:found]
        has_call = has_call or bool(parse_turn(chunk).calls)
        if has_call and not _in_closed_thinking(text, turn_start, found, forced_prefix):
            parts.add_turn(text[turn_start:found])
            responses, position = _read_responses(text, found)
            parts.add_responses(responses)
            turn_start, chunk_start, has_call = position, position, False
        else:
            chunk_start = found + len(_OPEN_RESPONSE)


def _in_closed_thinking(text: str, turn_start: int, position: int, forced_prefix: str) -> bool:
    """Whether the thinking open at ``position`` is closed after it, before other thinking opens.

    With a forced prefix the turn after a real response closes thinking that the string does not show opened.
    """
    if forced_prefix or text.rfind("<think>", turn_start, position) <= text.rfind("</think>", turn_start, position):
        return False
    closing = text.find("</think>", position)
    return closing >= 0 and text.find("<think>", position, closing) < 0
