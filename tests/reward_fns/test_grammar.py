"""Calls, tags and blocks of one turn."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_fns.grammar import MAX_TAGS, ToolCall, parse_tool_calls, parse_turn, render_tool_call

ONE = '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 5}}'
TWO = '{"name": "crop_video", "arguments": {"start_time": 7, "end_time": 9}}'


def starts(text):
    return [call.arguments.get("start_time") for call in parse_tool_calls(text).calls]


@pytest.mark.parametrize(
    ("text", "expected", "num_errors", "why"),
    [
        (f"<tool_call>[{ONE}, {TWO}]</tool_call>", [1, 7], 0, "a list of objects"),
        (f"<tool_call>{ONE}<tool_call>{TWO}", [1, 7], 0, "missing closing tags"),
        (f"<tool_call>{ONE}</tool_call><|im_end|>\n", [1], 0, "end of turn after the call"),
        (f"<tool_call>{ONE}<|im_end|>", [1], 0, "end of turn in place of the closing tag"),
        (f"<tool_call>{ONE} and so on</tool_call>", [1], 1, "words after the object"),
        ("<tool_call></tool_call>", [], 1, "nothing in the tag"),
        (
            '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "x": "</tool_call><think>"}}</tool_call>',
            [1],
            0,
            "tags in a string",
        ),
        ('<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "x": "a\nb"}}', [1], 0, "control character"),
        ('<tool_call>{"name": "crop_video"}</tool_call>', [], 1, "no arguments"),
        ('<tool_call>{"name": "crop_video", "arguments": [1, 5]}</tool_call>', [], 1, "arguments in a list"),
        ('<tool_call>{"name": "crop_video", "arguments": "{1"}</tool_call>', [], 1, "arguments in a broken string"),
        ('<tool_call>{"name": ["crop_video"], "arguments": {}}</tool_call>', [], 1, "a name that is no string"),
        ("<tool_call>" + '{"a":' * 50_000, [], 1, "nested too deeply"),
        (f"<think>quoted <tool_call>{ONE}</tool_call></think>", [], 0, "in closed thinking"),
        (f"<think>open <tool_call>{ONE}</tool_call>", [1], 0, "thinking that never closes holds no quotes"),
        (f"<tool_response><tool_call>{ONE}</tool_call></tool_response>", [], 0, "in a tool response"),
        (f"<tool_response>x</tool_response><tool_call>{ONE}</tool_call>", [1], 0, "after a tool response"),
        (f"<tool_response><tool_call>{ONE}</tool_call>", [], 0, "an open response takes all that follows"),
        ("<tool_code>crop_video(1, 5)</tool_code>", [1], 0, "positional"),
        ("<tool_code>a = crop_video(1, end_time=5)\ncrop_video(7, 9)</tool_code>", [1, 7], 0, "assigned, two lines"),
        ("<tool_code>[crop_video(1, 5), crop_video(7, 9)]</tool_code>", [1, 7], 0, "listed"),
        ("<tool_code>crop_video(1, note='</tool_code>')</tool_code>", [1], 0, "closing tag in a string"),
        ("<tool_code>crop_video(1, 5)", [1], 0, "code without a closing tag"),
        ("<tool_code>crop_video(1 + 1, 5)</tool_code>", [], 1, "an expression is not evaluated"),
        ("<tool_code>crop_video(open('x'), 5)</tool_code>", [], 1, "a call in an argument is not evaluated"),
        ("<tool_code>crop_video(1, 2, 3)</tool_code>", [], 1, "one argument too many"),
        ("<tool_code>crop_video(1, start_time=2)</tool_code>", [], 1, "an argument twice"),
        ("<tool_code>crop_video(**{})</tool_code>", [], 1, "unpacked arguments"),
        ("<tool_code>x.crop_video(1, 5)</tool_code>", [], 1, "a method"),
        ("<tool_code>import os\ncrop_video(1, 5)</tool_code>", [1], 1, "a bad statement leaves its sibling"),
        ("<tool_code></tool_code>", [], 1, "no code"),
        ("<tool_code>" + "-" * 9000 + "1</tool_code>", [], 1, "more code than is read"),
    ],
)
def test_calls_of_a_turn(text, expected, num_errors, why):
    parsed = parse_tool_calls(text)
    assert [call.arguments.get("start_time") for call in parsed.calls] == expected, why
    assert len(parsed.errors) == num_errors, why


def test_spans_hold_the_call_and_the_error():
    code = "<tool_code>\nü = crop_video(7, 9)\n</tool_code>"
    text = f"ä<think>é</think><tool_call>{ONE}\n</tool_call>{code}<tool_call>!</tool_call>"
    parsed = parse_tool_calls(text)
    first, second = (text[slice(*call.span)] for call in parsed.calls)
    assert json.loads(first)["name"] == "crop_video"
    assert second == "crop_video(7, 9)"
    assert text[slice(*parsed.errors[0].span)] == "!"


def test_the_reason_names_the_tools_there_are():
    (error,) = parse_tool_calls('<tool_call>{"name": "zoom", "arguments": {}}</tool_call>').errors
    assert "'zoom'" in error.reason and "crop_video" in error.reason


@pytest.mark.parametrize(
    ("text", "balanced", "why"),
    [
        ("<think>x</think><answer>B</answer>", True, "plain"),
        ("<think><tool_call></think>", True, "a tag quoted in closed thinking"),
        ("<answer>A <answer>B</answer>", False, "an answer opened twice"),
        ("<answer><tool_call></answer></tool_call>", False, "crossed"),
        ("</think>", False, "closes nothing"),
        ("<tool_response>x", False, "an open response"),
        (f"<tool_call>{ONE}", False, "an open call"),
        ("<answer></answer>" * (MAX_TAGS // 2 + 1), False, "more tags than are read"),
    ],
)
def test_balance(text, balanced, why):
    assert parse_turn(text).balanced is balanced, why


def test_the_inner_of_two_answers_is_the_closed_one():
    outer, inner = parse_turn("<answer>A <answer>B</answer>").answers
    assert (outer.body, outer.closing) == ("A", None)
    assert inner.body == "B" and inner.closing == (19, 28)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=4))
def test_rendered_calls_parse_back(arguments):
    text = "<think>look</think>" + "\n".join(render_tool_call(ToolCall("crop_video", a)) for a in arguments)
    parsed = parse_tool_calls(text)
    assert [call.arguments for call in parsed.calls] == arguments
    assert parsed.errors == []


PIECES = ["<", "</", "think>", "answer>", "tool_call>", "tool_code>", "tool_response>", '"', "\\", "{", "}", "[", "]"]
PIECES += ["<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "<tool_response>"]
PIECES += [
    "</tool_response>",
    "<tool_code>",
    "</tool_code>",
    ONE,
    ONE[:30],
    "crop_video(1, 5)",
    ",",
    "\n",
    "x",
    "é",
    "'",
]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_turn_raises_and_spans_lie_in_the_text(text):
    structure = parse_turn(text)
    spans = [call.span for call in structure.calls] + [error.span for error in structure.errors]
    spans += structure.think_closings
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert structure.calls == sorted(structure.calls, key=lambda call: call.span)


@pytest.mark.parametrize(
    "unit",
    [
        '<tool_call>{"',
        "<think>",
        "<answer>",
        "<answer></tool_code>",
        '<tool_code>"',
        "<tool_call>{\n",
        "<tool_response>",
    ]
    + [
        '<tool_call>{"a":"\\"',
        '", "<tool_call>[',
        '{"name":"<think>"}',
        "<tool_call>" + ONE,
        "<tool_code>crop_video(1, 5)",
    ],
)
def test_the_time_is_linear(unit):
    """100,000 characters, whatever they are, take less than 50 ms (five times that here, for a busy machine)."""
    text = ("<tool_call>" + unit * (100_000 // len(unit)))[:100_000]
    best = min(_seconds(parse_turn, text) for _ in range(3))
    assert best < 0.25


def _seconds(function, *arguments):
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started
