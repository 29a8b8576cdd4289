"""Windows of crop calls: what models write, and the texts they get back."""

import json
import math
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_tools import CROP_VIDEO_SCHEMA, CropWindow, ToolArgumentError, VideoError

CASES = Path(__file__).resolve().parents[1] / "cases" / "crop_windows.jsonl"
DURATION = 4000.0


def window(start_time, end_time, duration_seconds=DURATION, **others):
    arguments = {"start_time": start_time, "end_time": end_time, **others}
    made = CropWindow.from_arguments(arguments, duration_seconds)
    return made.start_seconds, made.end_seconds


@pytest.mark.parametrize("line", CASES.read_text("utf-8").splitlines(), ids=lambda line: json.loads(line)["why"])
def test_case(line):
    case = json.loads(line)
    if case["expected"] is None:
        with pytest.raises(ToolArgumentError):
            CropWindow.from_arguments(case["arguments"], case["duration_seconds"])
    else:
        made = CropWindow.from_arguments(case["arguments"], case["duration_seconds"])
        assert [made.start_seconds, made.end_seconds] == case["expected"]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (7, 7.0),
        (7.25, 7.25),
        ("7.25", 7.25),
        (" 7 ", 7.0),
        ("7.", 7.0),
        (".5", 0.5),
        ("1e1", 10.0),
        ("+3", 3.0),
        ("01:30", 90.0),
        ("1:30.5", 90.5),
        ("90:00", 5400.0),
        ("01:01:01.25", 3661.25),
        ("5s", 5.0),
        ("5 s", 5.0),
        ("5 seconds", 5.0),
        ("1 second", 1.0),
        ("5 sec", 5.0),
        ("1.5 min", 90.0),
        ("2 minutes", 120.0),
        ("1m30s", 90.0),
        ("1 m 30 S", 90.0),
        ("1h", 3600.0),
        ("1h 2m 3.5s", 3723.5),
        (-0.0, 0.0),
    ],
)
def test_a_time(written, seconds):
    assert window(written, 9000, 10_000.0) == (seconds, 9000.0)


@pytest.mark.parametrize(
    "bad",
    [
        *(
            None,
            True,
            False,
            [],
            [3],
            {},
            {"seconds": 3},
            "",
            " ",
            "soon",
            "5 apples",
            "1:2:3:4",
            "1:75",
            "1:99:00",
        ),
        *("nan", "inf", "-inf", "1e999", math.nan, math.inf, -math.inf, 10**400, "9" * 5000),
        *("٣", "1,5", "--5", "5-10", "0x10", "1_000", "s", ":", "1:", ":30", "\ud800", b"5"),
        *(10**5000, "1:" * 40, object()),
    ],
    ids=lambda bad: f"{type(bad).__name__} {str(bad)[:20]!a}" if not isinstance(bad, int) else "int",
)
@pytest.mark.parametrize("field", ["start_time", "end_time"])
def test_no_time(bad, field):
    arguments = {"start_time": 1, "end_time": 2, field: bad}
    with pytest.raises(ToolArgumentError) as caught:
        CropWindow.from_arguments(arguments, DURATION)
    text = str(caught.value)
    assert "4000" in text and "_time" in text and len(text) < 400
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (-1, 5, ["-1", "at least 0"]),
        ("-1", 5, ["-1", "at least 0"]),
        (60, 70, ["60", "before the end"]),
        (9, 3, ["9", "3", "after start_time"]),
        (9, 9, ["9", "after start_time"]),
        ("soon", 5, ["soon", "start_time", "seconds"]),
        ([1], 5, ["list", "start_time"]),
        (None, 5, ["start_time is missing"]),
    ],
)
def test_the_text_names_what_was_given_what_is_legal_and_the_duration(start, end, words):
    with pytest.raises(ToolArgumentError) as caught:
        window(start, end, 60.0)
    assert all(word in str(caught.value) for word in [*words, "60.00 seconds"])


def test_aliases_and_other_arguments():
    made = CropWindow.from_arguments({"start": "0:01", "end": 2, "video_path": "x.mp4", "fps": []}, 60.0)
    assert (made.start_seconds, made.end_seconds) == (1.0, 2.0)
    assert window(1, 2, start=30, end=40) == (1.0, 2.0)
    assert window(None, 2, start=1) == (1.0, 2.0)


def test_arguments_that_are_no_object():
    for arguments in (None, [1, 2], "1-2", 3):
        with pytest.raises(ToolArgumentError, match="object"):
            CropWindow.from_arguments(arguments, 60.0)


@pytest.mark.parametrize("duration_seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_duration_is_the_callers_fault(duration_seconds):
    with pytest.raises(ValueError, match="duration_seconds") as caught:
        window(1, 2, duration_seconds)
    assert not isinstance(caught.value, ToolArgumentError)


@pytest.mark.parametrize(
    ("start", "end"), [(-1, 2), (2, 2), (3, 2), (math.nan, 2), (0, math.nan), (0, math.inf), (-math.inf, 0)]
)
def test_a_window_is_checked_when_made(start, end):
    with pytest.raises(ToolArgumentError):
        CropWindow(start, end)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TIMES = ANYTHING | st.from_regex(r"\A\d{0,3}(:|\.|m|s| )?\d{0,3}(:|\.|s| min)?\d{0,2}\Z")


@given(
    st.dictionaries(st.sampled_from(["start_time", "end_time", "start", "end", "x"]), TIMES),
    st.floats(min_value=1e-3, max_value=1e6),
)
def test_a_window_lies_in_the_video_or_is_refused(arguments, duration_seconds):
    try:
        made = CropWindow.from_arguments(arguments, duration_seconds)
    except ToolArgumentError as error:
        str(error).encode("utf-8")
    else:
        assert 0 <= made.start_seconds < made.end_seconds <= duration_seconds


@given(st.floats(0, 3000), st.floats(min_value=0.001, max_value=5000))
def test_numbers_and_their_texts_agree(start, length):
    expected = (start, min(start + length, DURATION))
    assert window(start, start + length) == expected
    assert window(repr(start), repr(start + length)) == expected


@given(st.integers(0, 359_999))
def test_clock_times_and_units_agree(seconds):
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    for text in (f"{hours:02}:{minutes:02}:{rest:02}", f"{hours}h{minutes}m{rest}s"):
        assert window(text, 10**6, 10.0**6) == (float(seconds), 10.0**6)


def test_the_schema_names_what_a_window_needs():
    function = CROP_VIDEO_SCHEMA["function"]
    assert CROP_VIDEO_SCHEMA["type"] == "function" and function["name"] == "crop_video"
    parameters = function["parameters"]
    assert parameters["required"] == list(parameters["properties"]) == ["start_time", "end_time"]
    assert {field["type"] for field in parameters["properties"].values()} == {"number"}
    json.dumps(CROP_VIDEO_SCHEMA)


def test_errors_pickle():
    error = pickle.loads(pickle.dumps(VideoError(Path("a/b.mp4"), "torn")))
    assert (error.path, error.reason, str(error)) == ("a/b.mp4", "torn", "a/b.mp4: torn")
    assert str(pickle.loads(pickle.dumps(ToolArgumentError("bad")))) == "bad"
