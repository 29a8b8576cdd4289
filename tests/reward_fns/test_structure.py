"""R_base, R_anchor, malformed and the anchor events, against numbers worked by hand."""

import pytest

from reward_fns import (
    AnchorEvent,
    FormatSettings,
    Transcript,
    Turn,
    anchor_events,
    anchor_reward,
    format_base,
    format_reward,
    is_malformed,
    tool_reward,
)

CALL = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 5}}</tool_call>'
THINK = "<think>ten letters</think>"
VANILLA = FormatSettings(answer_suffix=False, lambda_anchor=0.0)


def rollout(*texts, executed=()):
    flags = [executed, *[()] * len(texts)]
    return Transcript(tuple(Turn(text, done) for text, done in zip(texts, flags, strict=False)))


@pytest.mark.parametrize(
    ("texts", "suffix_on", "suffix_off", "why"),
    [
        ([f"{THINK}<answer>B</answer>"], 0.2 + 0.3 + 0.2 + 0.1, 0.3 + 0.2 + 0.1 + 0.1, "direct and clean"),
        ([f"{THINK}{CALL}", f"{THINK}<answer>B</answer>"], 1.1, 1.0, "every term; only R_fmt is clipped"),
        ([f"{THINK}{CALL}"] * 3, 0.2 + 0.3 + 0.1, 0.3 + 0.3 + 0.1, "a term counts once"),
        ([f"{THINK}<answer>B"], 0.2 + 0.3, 0.3 + 0.2, "the answer is cut"),
        (["<think>too short</think><answer>B</answer>"], 0.6, 0.4, "nine characters are no substance"),
        (["<think>\n         \n</think><answer>B</answer>"], 0.6, 0.4, "white space does not count"),
        ([THINK], 0.2 + 0.1, 0.3 + 0.1, "thinking alone"),
        (["<answer>B</answer>"], 0.6, 0.4, "an answer alone"),
        (["nothing"], 0.0, 0.0, "balanced, but the score so far is 0"),
        (["<think>\n" + CALL], 0.0, 0.0, "the forced prefix alone earns nothing"),
        ([f"<think>x</think>{CALL}"], 0.3 + 0.1, 0.3 + 0.1, "short thinking stands before a call"),
        ([f"<think>x{CALL}"], 0.3, 0.3, "open thinking stands before a call as well"),
        ([f"{CALL}{THINK}"], 0.2 + 0.1, 0.3 + 0.1, "thinking after the call"),
        ([THINK, CALL], 0.2 + 0.1, 0.3 + 0.1, "thinking in another turn"),
        ([f"{THINK}<tool_call>no</tool_call>"], 0.2 + 0.1, 0.3 + 0.1, "the call does not parse"),
        (["<think><answer>B</answer> in here</think>"], 0.2 + 0.1, 0.3 + 0.1, "a quoted answer"),
        ([f"{THINK}<answer>B</answer></think>"], 0.7, 0.6, "a tag too many"),
    ],
)
def test_base(texts, suffix_on, suffix_off, why):
    assert format_base(rollout(*texts)) == pytest.approx(suffix_on), why
    assert format_base(rollout(*texts), VANILLA) == pytest.approx(suffix_off), why


@pytest.mark.parametrize(
    ("texts", "anchor", "why"),
    [
        ([f"{THINK}<answer>B</answer>"], 0.4 + 0.3, "closed, and the full flow"),
        ([THINK], 0.4, "closed"),
        ([f"{THINK}<answer>B"], 0.4, "the answer is not closed"),
        ([f"{THINK}<answer> </answer>"], 0.4, "the answer is empty"),
        ([THINK, "<answer>B</answer>"], 0.4, "the answer is in another turn"),
        (["<answer>B</answer>" + THINK], 0.4, "the answer comes first"),
        (["<think>short</think><answer>B</answer>"], 0.0, "no substance"),
        (["<think>ten letters <answer>B</answer>"], -0.3, "never closed"),
        ([f"{THINK}<answer>B</answer>", "<think>x"], 0.4, "0.7 and a turn that never closes: 0.7 - 0.3"),
        ([], 0.0, "no turns"),
    ],
)
def test_anchor(texts, anchor, why):
    assert anchor_reward(rollout(*texts)) == pytest.approx(anchor), why


def test_format_is_base_and_weighted_anchor_clipped():
    open_thinking = rollout("<think>\nlong enough thinking <answer>B</answer>")
    assert format_reward(open_thinking) == pytest.approx(0.7 - 0.5 * 0.3)
    assert format_reward(open_thinking, FormatSettings(lambda_anchor=0)) == pytest.approx(0.7)
    assert format_reward(open_thinking, FormatSettings(gamma=0)) == pytest.approx(0.7)
    assert format_reward(rollout(f"{THINK}{CALL}", f"{THINK}<answer>B</answer>")) == 1.0
    assert format_reward(rollout("<think>")) == 0.0


@pytest.mark.parametrize(
    ("texts", "malformed", "why"),
    [
        ([f"{THINK}<answer>B</answer>"], False, "clean"),
        (["<think>x</think><answer>B</answer>"], False, "short thinking is no error"),
        ([f"{THINK}{CALL}", f"{THINK}<answer>B</answer>"], False, "two clean turns"),
        ([CALL, f"{THINK}<answer>B</answer>"], True, "a turn without thinking"),
        (["<think> </think><answer>B</answer>"], True, "empty thinking"),
        (["<think>x<answer>B</answer>"], True, "open thinking"),
        ([f"{THINK}<answer>B"], True, "open answer"),
        ([f"{THINK}<answer></answer>"], True, "empty answer"),
        ([f"{THINK}<answer>B</answer>", THINK], True, "no answer in the last turn"),
        ([f"{THINK}<tool_call>no</tool_call>", f"{THINK}<answer>B</answer>"], True, "a call that does not parse"),
        ([], True, "no turns"),
    ],
)
def test_malformed(texts, malformed, why):
    assert is_malformed(rollout(*texts)) is malformed, why


def test_tool_reward_levels():
    """Published code: real responses were masked, so "executed" was never reached; and F1 0.01 counted as right."""
    assert tool_reward(rollout(THINK), 1.0) == 0.0
    assert tool_reward(rollout(CALL), 1.0) == 0.1
    assert tool_reward(rollout(CALL, executed=(True,)), 0.49) == 0.3
    assert tool_reward(rollout(CALL, executed=(True,)), 0.5) == 0.8
    assert tool_reward(rollout(f"{CALL}<tool_response>I saw it</tool_response>"), 1.0) == 0.1


def events(*texts):
    return {
        (e.kind, e.turn, texts[e.turn][slice(*e.span)], e.span[0], e.happened) for e in anchor_events(rollout(*texts))
    }


def test_anchor_events_of_a_clean_rollout():
    turns = [f"{THINK}{CALL}", f"{THINK}<answer>B</answer>"]
    close, answer = turns[0].index("</think>"), turns[1].index("</answer>")
    assert events(*turns) == {
        ("think_closed", 0, "</think>", close, True),
        ("think_closed", 1, "</think>", close, True),
        ("full_flow", 1, "</answer>", answer, True),
        ("think_unclosed", 0, "</think>", close, False),
        ("think_unclosed", 1, "</think>", close, False),
    }


def test_anchor_events_of_open_thinking():
    turns = ["<think>never closed " + CALL, "<think>again <answer>B"]
    assert events(*turns) == {
        ("think_closed", 0, "", len(turns[0]), False),
        ("think_closed", 1, "", len(turns[1]), False),
        ("full_flow", 1, "", len(turns[1]), False),
        ("think_unclosed", 0, "", len(turns[0]), True),
        ("think_unclosed", 1, "", len(turns[1]), True),
    }


def test_an_insubstantial_closing_is_blamed_where_it_stands():
    text = "<think>short</think><answer>B</answer>"
    close = text.index("</think>")
    # No full_flow event: a closed, non-empty answer stands, the fault is the thinking's.
    assert events(text) == {
        ("think_closed", 0, "</think>", close, False),
        ("think_unclosed", 0, "</think>", close, False),
    }


def test_only_the_turns_that_leave_thinking_open_are_blamed_for_it():
    turns = [f"{THINK}{CALL}", "<think>open"]
    unclosed = [e for e in anchor_events(rollout(*turns)) if e.kind == "think_unclosed"]
    assert unclosed == [AnchorEvent("think_unclosed", 1, (11, 11), True)]


def test_no_turns_no_events():
    assert anchor_events(Transcript()) == []
