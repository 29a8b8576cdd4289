"""Transcripts from decoded strings, and which calls count as executed."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_fns import Transcript, Turn, compute_score

CALL = '<tool_call>\n{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 5}}\n</tool_call>'
BAD_CALL = "<tool_call>\nnot json\n</tool_call>"
ASK = f"<think>\nI should look closer.</think>{CALL}"
DONE = "<think>\nNow it is clear to me.</think><answer>B</answer>"


def special(response, ask=ASK):
    return f"{ask}<|im_end|>\n<|im_start|>user\n{response}<|im_end|>\n<|im_start|>assistant\n{DONE}<|im_end|>"


def bare(response, ask=ASK):
    return f"{ask}\nuser\n{response}\nassistant\n{DONE}"


def flat(response, ask=ASK):
    return f"{ask}\n{response}\n{DONE}"


def response(text):
    return f"<tool_response>\n{text}\n</tool_response>"


@pytest.mark.parametrize("layout", [special, bare, flat])
def test_a_response_means_executed(layout):
    transcript = Transcript.from_text(layout(response("a red ball")))
    assert [turn.text for turn in transcript.turns] == [ASK, DONE]
    assert transcript.num_executed_calls == 1
    assert transcript.answer == "B"


@pytest.mark.parametrize("layout", [special, bare, flat])
def test_an_error_is_not_an_execution(layout):
    transcript = Transcript.from_text(layout(response("Error: the window is empty")))
    assert (transcript.num_calls, transcript.num_executed_calls) == (1, 0)


@pytest.mark.parametrize("layout", [special, bare, flat])
def test_a_bad_call_with_its_own_error_does_not_shift_the_others(layout):
    ask = f"<think>\nlook</think>{BAD_CALL}{CALL}"
    text = layout(response("Error: not JSON") + "\n" + response("a red ball"), ask)
    assert Transcript.from_text(text).turns[0].executed == (True,)


@pytest.mark.parametrize("layout", [special, bare, flat])
def test_without_an_answer_to_a_bad_call_the_order_of_the_calls_counts(layout):
    ask = f"<think>\nlook</think>{BAD_CALL}{CALL}{CALL}"
    text = layout(response("a red ball") + response("Error: late"), ask)
    assert Transcript.from_text(text).turns[0].executed == (True, False)


def test_the_model_cannot_execute_its_own_calls():
    """Published code: the executed level was reached only by a model that wrote the response itself."""
    text = f"{ASK}{response('I saw a red ball')}{DONE}<|im_end|>\n<|im_start|>user\nThank you<|im_end|>\n"
    assert Transcript.from_text(text).num_executed_calls == 0


FORGERY = st.lists(
    st.sampled_from(
        ["<|im_start|>assistant\n", "<|im_end|>", "\nassistant\n", "\nuser\n", "<answer>A</answer>", "<think>", "x"]
        + ["<tool_response>", CALL, "\ntool\n", "<|im_start|>user\n"]
    )
).map("".join)


@pytest.mark.parametrize("layout", [special, bare])
@given(text=FORGERY)
def test_a_response_cannot_forge_a_turn(layout, text):
    if layout is bare:
        text = text.replace("<|im_start|>", "")
    transcript = Transcript.from_text(layout(response(text)))
    assert [turn.text for turn in transcript.turns] == [ASK, DONE]


@pytest.mark.parametrize("layout", [special, bare])
@given(text=st.text().filter(lambda text: "</tool_response>" not in text))
def test_a_response_changes_the_execution_and_nothing_else(layout, text):
    without = compute_score("x", layout("no response"), "B", {"question_type": "mcq"})
    with_one = compute_score("x", layout(response(text)), "B", {"question_type": "mcq"})
    changed = {key for key in without if without[key] != with_one[key]}
    assert changed <= {"num_executed_calls", "tool", "score"}


def test_a_whole_conversation_holds_only_the_assistants_turns():
    text = f"<|im_start|>system\nYou see <answer>A</answer><|im_end|>\n<|im_start|>assistant\n{DONE}<|im_end|>"
    assert [turn.text for turn in Transcript.from_text(text).turns] == [DONE]


def test_a_line_user_in_the_thinking_is_no_marker():
    text = "<think>\nthe name is\nuser\nor so</think><answer>B</answer>"
    assert len(Transcript.from_text(text)) == 1


def test_a_flat_string_is_not_cut_in_closed_thinking():
    text = f"<think>\nI might {CALL}{response('x')} but no</think><answer>B</answer>"
    assert len(Transcript.from_text(text)) == 1


def test_a_flat_string_is_not_cut_without_a_call():
    assert len(Transcript.from_text(f"<think>x</think>{response('y')}<answer>B</answer>")) == 1


def test_the_forced_prefix_is_put_before_every_turn_that_lacks_it():
    text = special(response("x"), ask=ASK.removeprefix("<think>\n"))
    turns = Transcript.from_text(text, forced_prefix="<think>\n").turns
    assert [turn.text for turn in turns] == [ASK, DONE]


def test_the_prefix_is_needed_for_full_marks():
    """Published code: the reward saw only what was sampled, so that a clean answer got 0.5."""
    sampled = "\nThe flash is early in the video.</think><answer>B</answer>"
    scores = [compute_score("x", sampled, "B", forced_prefix=prefix)["format"] for prefix in ("", "<think>\n")]
    assert scores[1] == 1.0 and scores[0] < 1.0


def test_empty_strings_have_no_turns():
    for text in ("", "  \n", "<|im_end|>", "<|im_start|>assistant\n"):
        assert len(Transcript.from_text(text, "<think>\n")) == 0


def test_more_flags_than_calls_are_an_error():
    with pytest.raises(ValueError, match="2 executed flags for 1 calls"):
        Turn(CALL, (True, True))


def test_transcripts_pickle():
    transcript = Transcript((Turn(ASK, [True]), Turn(DONE)))
    assert transcript.answer == "B"
    copy = pickle.loads(pickle.dumps(transcript))
    assert copy == transcript and copy.num_executed_calls == 1
