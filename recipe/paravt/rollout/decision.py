"""What follows a turn of the main agent: a pure function of the turn, the settings and what has been used up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from recipe.paravt.settings import ParaVTSettings


class NextStep(Enum):
    """``CALL`` goes on: calls are run, errors answered, and another turn follows. All others end the rollout; their
    values are what its record shows."""

    CALL = "call"
    ANSWERED = "answered"
    SILENT = "neither answer nor call"
    OUT_OF_TURNS = "max_turns"
    OUT_OF_TOKENS = "max_tokens"


@dataclass(frozen=True)
class TurnContent:
    """What a turn holds, as far as it decides.

    Attributes:
        num_calls: calls that parse.
        num_errors: calls that do not.
        has_answer: whether it holds an ``<answer>`` that is not empty, outside of its thinking.
    """

    num_calls: int
    num_errors: int
    has_answer: bool


@dataclass(frozen=True)
class Counters:
    """What a rollout has used up.

    Attributes:
        turns: assistant turns so far, this one included.
        tokens_left: that the next turn could sample.
    """

    turns: int
    tokens_left: int


def next_step(turn: TurnContent, settings: ParaVTSettings, used: Counters) -> NextStep:
    """The decision after a turn.

    A call goes before an answer in the same turn: what comes back may change it. A call that does not parse is answered
    with its error, except beside an answer, which it does not undo.
    """
    if not turn.num_calls and (turn.has_answer or not turn.num_errors):
        return NextStep.ANSWERED if turn.has_answer else NextStep.SILENT
    if used.turns >= settings.max_turns:
        return NextStep.OUT_OF_TURNS
    if used.tokens_left < 1:
        return NextStep.OUT_OF_TOKENS
    return NextStep.CALL
