"""What follows a turn, case by case."""

import pytest

from recipe.paravt.rollout.decision import Counters, NextStep, TurnContent, next_step
from recipe.paravt.settings import ParaVTSettings

ANSWER, CALL, ERROR = {"has_answer": True}, {"num_calls": 1}, {"num_errors": 1}
NOTHING = {"num_calls": 0, "num_errors": 0, "has_answer": False}
EARLY, LAST, FULL = Counters(1, 100), Counters(3, 100), Counters(1, 0)


@pytest.mark.parametrize(
    ("content", "used", "expected"),
    [
        ({}, EARLY, NextStep.SILENT),
        (ANSWER, EARLY, NextStep.ANSWERED),
        (CALL, EARLY, NextStep.CALL),
        (ERROR, EARLY, NextStep.CALL),
        (CALL | ANSWER, EARLY, NextStep.CALL),
        (ERROR | ANSWER, EARLY, NextStep.ANSWERED),
        (CALL | ERROR, EARLY, NextStep.CALL),
        (CALL | ERROR | ANSWER, EARLY, NextStep.CALL),
        ({}, LAST, NextStep.SILENT),
        (ANSWER, LAST, NextStep.ANSWERED),
        (CALL, LAST, NextStep.OUT_OF_TURNS),
        (ERROR, LAST, NextStep.OUT_OF_TURNS),
        (CALL | ANSWER, LAST, NextStep.OUT_OF_TURNS),
        (ERROR | ANSWER, LAST, NextStep.ANSWERED),
        ({}, FULL, NextStep.SILENT),
        (ANSWER, FULL, NextStep.ANSWERED),
        (CALL, FULL, NextStep.OUT_OF_TOKENS),
        (ERROR, FULL, NextStep.OUT_OF_TOKENS),
        (CALL, Counters(3, 0), NextStep.OUT_OF_TURNS),
        (CALL, Counters(2, 1), NextStep.CALL),
    ],
)
def test_the_next_step(content, used, expected):
    assert next_step(TurnContent(**(NOTHING | content)), ParaVTSettings(max_turns=3), used) is expected


def test_an_answer_beside_a_call_on_the_only_turn_is_the_end():
    content = TurnContent(num_calls=2, num_errors=0, has_answer=True)
    assert next_step(content, ParaVTSettings(max_turns=1), Counters(1, 100)) is NextStep.OUT_OF_TURNS
