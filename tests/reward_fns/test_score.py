"""The reward function itself."""

import doctest
import importlib
import pickle
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reward_fns
from reward_fns import RewardBreakdown, RewardSettings, Transcript, Turn, check_gold, compute_score

CLEAN = "<think>The flash is early in the video.</think><answer>B</answer>"
CALL = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 5}}</tool_call>'
KEYS = (
    "score acc format format_base anchor tool num_calls num_executed_calls num_turns answered malformed judge_fallback"
)


def test_the_reward_and_its_parts():
    executed = Transcript((Turn(f"<think>I look closer.</think>{CALL}", (True,)), Turn(CLEAN)))
    parts = compute_score("x", "", "B", {"question_type": "mcq", "transcript": executed})
    assert parts == {
        **{"score": 1 + 1 + 0.8, "acc": 1.0, "format": 1.0, "format_base": pytest.approx(1.1), "tool": 0.8},
        **{"anchor": pytest.approx(0.7), "num_calls": 1.0, "num_executed_calls": 1.0, "num_turns": 2.0},
        **{"answered": 1.0, "malformed": 0.0, "judge_fallback": 0.0},
    }


def test_weights_and_the_anchor_outside_the_score():
    half = compute_score("x", CLEAN, "B", w_fmt=0.5, w_tool=2.0, anchor_in_score=False)
    assert half["score"] == pytest.approx(1 + 0.5 * 0.8)
    assert half["format"] == 1.0  # reported with the anchor in it, whatever is trained on


@pytest.mark.parametrize("text", ["", CLEAN, "<think>", CALL])
def test_the_keys_are_always_the_same_floats(text):
    parts = compute_score("x", text, "B")
    assert " ".join(parts) == KEYS
    assert all(type(value) is float for value in parts.values())


def test_an_empty_rollout_is_malformed_and_earns_nothing():
    parts = compute_score("x", "", "B", {"question_type": "mcq", "transcript": Transcript()})
    assert parts["malformed"] == 1.0 and parts["score"] == 0.0


def test_the_type_follows_from_the_options():
    assert compute_score("x", CLEAN, "a red car", {"options": ["a bus", "a red car"]})["acc"] == 1.0
    assert compute_score("x", CLEAN, "a red car", {"options": []})["acc"] == 0.0
    span = "<think>x</think><answer>[0, 10]</answer>"
    assert compute_score("x", span, [0, 10], {"question_type": "tvg"})["acc"] == 1.0


def test_wrong_names_raise():
    with pytest.raises(TypeError, match="w_format"):
        compute_score("x", CLEAN, "B", w_format=1.0)
    with pytest.raises(ValueError, match=r"'quiz'.*mcq, tvg, oe"):
        compute_score("x", CLEAN, "B", {"question_type": "quiz"})
    with pytest.raises(ValueError, match=r"'rouge'.*f1, exact"):
        compute_score("x", CLEAN, "B", open_ended="rouge")


def test_exact_grading():
    text = "<answer>a big red car</answer>"
    assert 0 < compute_score("x", text, "a red car", {"question_type": "oe"})["acc"] < 1
    assert compute_score("x", text, "a red car", {"question_type": "oe"}, open_ended="exact")["acc"] == 0.0


def test_everything_pickles():
    for value in (RewardSettings(), Transcript((Turn(CLEAN),)), RewardBreakdown(*[0.0] * 12), compute_score):
        assert pickle.loads(pickle.dumps(value)) == value


@given(st.text(), st.text() | st.none() | st.integers(), st.sampled_from(["mcq", "tvg", "oe", None]))
def test_no_text_raises(solution, truth, kind):
    parts = compute_score("x", solution, truth, {"question_type": kind}, forced_prefix="<think>\n")
    assert 0.0 <= parts["score"] <= 2.8 and 0.0 <= parts["format"] <= 1.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question_type": "mcq", "answer": "B", "options": ["red", "blue"]}, None),
        ({"question_type": "mcq", "answer": "blue", "options": ["red", "blue"]}, None),
        ({"question_type": "mcq", "answer": "E", "options": ["red", "blue"]}, "none of"),
        ({"question_type": "mcq", "answer": "", "options": ["red", "blue"]}, "no answer"),
        ({"question_type": "tvg", "answer": "[1, 2]", "duration_seconds": 5.0}, None),
        ({"question_type": "tvg", "answer": "[2, 1]"}, "no span"),
        ({"question_type": "tvg", "answer": "[7, 9]", "duration_seconds": 5.0}, "after the end"),
        ({"question_type": "oe", "answer": "a red car"}, None),
        ({"extra_info": {"question_type": "oe", "answer": "a red car"}}, None),
        ({"question_type": "quiz", "answer": "x"}, "quiz"),
    ],
)
def test_gold_check(row, reason):
    reasons = check_gold(row)
    assert (reasons == []) if reason is None else (len(reasons) == 1 and reason in reasons[0])


@pytest.mark.parametrize("module", [info.name for info in pkgutil.iter_modules(reward_fns.__path__)])
def test_examples_in_docstrings(module):
    assert doctest.testmod(importlib.import_module(f"reward_fns.{module}")).failed == 0
