"""What counts as the right answer; a reason on each line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_fns import choice_letter, exact_match, mcq_accuracy, parse_spans, temporal_iou, token_f1

OPTIONS = ["a blue bus", "a red car", "a dog", "none of these"]


@pytest.mark.parametrize(
    ("text", "letter", "why"),
    [
        ("**B**", "B", "bold"),
        ("\\boxed{C}", "C", "boxed"),
        ("$\\boxed{\\text{D}}$", "D", "boxed text"),
        ("(c)", "C", "brackets, lower case"),
        ("b.", "B", "dot"),
        ("The answer is (c).", "C", "verdict"),
        ("Answer: B", "B", "colon"),
        ("answer is: **D. none of these**", "D", "verdict with text"),
        ("Final answer: b) red", "B", "lower case in brackets"),
        ("The correct answer is option B: a red car", "B", "option"),
        ("I'd go with option (b)", "B", "choice of words"),
        ("First I thought the answer is A. But the final answer is C", "C", "the last verdict"),
        ("the correct option is not B but C", "C", "negated verdict"),
        ("It's not A, it's B", "B", "negated letter"),
        ("A is wrong, B is right", "B", "negated after"),
        ("neither A nor B", None, "both negated"),
        ("A or B", None, "undecided"),
        ("(A) dog (B) cat", None, "a list of options"),
        ("the answer is a dog", None, "an article after the verdict"),
        ("the answer is a", "A", "a lower-case letter at the end"),
        ("The answer is A because it flies", "A", "not an article"),
        ("I think it is C", "C", "a pronoun"),
        ("A man", None, "an article"),
        ("I", "I", "the ninth option"),
        ("B. a red car", "B", "label"),
        ("B - a red car", "B", "label with a dash"),
        ("It's B", "B", "apostrophe before"),
        ("OK", None, "letters in a word"),
        ("", None, "empty"),
        ("???", None, "punctuation"),
    ],
)
def test_choice_letter(text, letter, why):
    assert choice_letter(text) == letter, why


@pytest.mark.parametrize(
    ("prediction", "truth", "options", "expected", "why"),
    [
        ("E", "A", OPTIONS, 0.0, "past the options"),
        ("The answer is E", "A", OPTIONS, 0.0, "a verdict past the options"),
        ("A dog", "C", OPTIONS, 1.0, "the text of an option starts with an article"),
        ("It is a red car.", "B", OPTIONS, 1.0, "the text stands in a sentence"),
        ("a blue bus and a red car", "B", OPTIONS, 0.0, "two options named"),
        ("not a dog", "C", OPTIONS, 0.0, "negated text"),
        ("B", "a red car", OPTIONS, 1.0, "the truth is the option's text"),
        ("B", "B. a red car", None, 1.0, "the truth carries its text"),
        ("a red car", "a red car", None, 1.0, "texts without options"),
        ("car", "B", ["a bus", "car", "red car"], 1.0, "a text that another one holds"),
        ("the red car", "C", ["a bus", "car", "red car"], 1.0, "the longer text is meant"),
        ("a red car", "B", ["A. a blue bus", "B. a red car"], 1.0, "options with their letters"),
        ("same", "A", ["same", "same"], 0.0, "two options of one text"),
        ("J", "J", [f"option {i}" for i in range(12)], 1.0, "ten options and more"),
    ],
)
def test_mcq_with_options(prediction, truth, options, expected, why):
    assert mcq_accuracy(prediction, truth, options) == expected, why


@pytest.mark.parametrize(
    ("text", "spans", "why"),
    [
        ("between 3 and 9 seconds", [(3, 9)], "and"),
        ("start: 12, end: 45", [(12, 45)], "named ends"),
        ('{"start_time": 12, "end_time": 45}', [(12, 45)], "JSON"),
        ("starts at 12 s and ends at 45 s", [(12, 45)], "words"),
        ("1-2 and 5-9", [(1, 2), (5, 9)], "two spans"),
        ("[[1,2],[5,9]]", [(1, 2), (5, 9)], "nested"),
        ("10-20%", [(10, 20)], "per cent, once"),
        ("1 minute 5 seconds to 2 minutes", [(65, 120)], "units"),
        ("1m30s - 1m45s", [(90, 105)], "short units"),
        ("1 to 2 minutes", [(60, 120)], "the unit of the second is the first's as well"),
        ("00:00:12,300 --> 00:00:45,600", [(12.3, 45.6)], "subtitle times"),
        ("1:00:05 - 1:00:10.5", [(3605, 3610.5)], "hours"),
        ("12.3 – 45.6", [(12.3, 45.6)], "long dash"),
        ("In scene 2, it happens from 12.3 to 45.6 seconds", [(12.3, 45.6)], "another number"),
        ("-5 - 10", [], "negative"),
        ("00:12", [], "one time only"),
        ("1.2.3, 4", [], "not a number"),
        ("9" * 400 + ", " + "9" * 500, [], "not finite"),
        ("", [], "empty"),
    ],
)
def test_spans(text, spans, why):
    assert parse_spans(text, duration_seconds=100) == [pytest.approx(span) for span in spans], why


def test_per_cent_need_the_duration():
    assert temporal_iou("10% to 20%", "[5, 10]", duration_seconds=50) == 1.0
    assert temporal_iou("10% to 20%", "[5, 10]") == 0.0


def test_several_spans_are_compared_as_unions():
    assert temporal_iou("[0, 10]", "[0, 4], [6, 10]") == pytest.approx(0.8)
    assert temporal_iou("[0, 4], [2, 10]", "[0, 10]") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("prediction", "truth", "f1", "why"),
    [
        ("-3.5", "3.5", 0.0, "the sign counts"),
        ("3.5", "35", 0.0, "the decimal point counts"),
        ("1,000 people", "1000 people", 1.0, "thousands"),
        ("3-5", "3 to 5", 0.8, "a range is two numbers: 2 of 2 and 3 tokens"),
        ("yes, it is red", "no, it is red", 0.0, "yes and no share nothing"),
        ("no", "no dogs", 2 / 3, "the same polarity counts"),
        ("there is no dog", "no", 0.0, "only a leading no is an answer to yes or no"),
        ("红色的车", "红车", 2 / 3, "characters: 2 shared of 4 and 2"),
        ("빨간 차", "빨간차", 1.0, "spaces do not matter there"),
        ("Don't", "dont", 1.0, "apostrophes"),
        ("U.S. flag", "US flag", 1.0, "abbreviations"),
        ("...", "...", 1.0, "nothing remains of both: the strings decide"),
        ("...", "!!!", 0.0, "nothing remains of both"),
        ("the", "red", 0.0, "nothing remains of one"),
    ],
)
def test_f1(prediction, truth, f1, why):
    assert token_f1(prediction, truth) == pytest.approx(f1), why
    assert token_f1(truth, prediction) == pytest.approx(f1), why


def test_exact_match():
    assert exact_match("The red car!", "a red car") == 1.0
    assert exact_match("car red", "red car") == 0.0
    assert exact_match("-3", "3") == 0.0


ANY = st.text() | st.lists(
    st.sampled_from(
        [
            "A",
            "a ",
            "I ",
            "the answer is ",
            "not ",
            "(",
            ")",
            "1",
            "2.5",
            ":",
            ",",
            "-",
            " to ",
            "%",
            " s",
            "\\boxed{",
            "}",
        ]
    )
).map("".join)


@given(ANY, ANY, st.none() | st.lists(st.text(), max_size=5))
def test_ranges_and_symmetry(first, second, options):
    assert mcq_accuracy(first, second, options) in (0.0, 1.0)
    assert exact_match(first, second) in (0.0, 1.0)
    assert 0.0 <= token_f1(first, second) <= 1.0
    assert token_f1(first, second) == token_f1(second, first)
    assert 0.0 <= temporal_iou(first, second, 60.0) <= 1.0
    assert temporal_iou(first, second, 60.0) == temporal_iou(second, first, 60.0)


@given(st.floats(0, 1e6), st.floats(0.001, 1e6))
def test_a_valid_span_overlaps_itself_wholly(start, length):
    text = f"[{start:.4f}, {start + length:.4f}]"
    assert temporal_iou(text, text) == pytest.approx(1.0 if parse_spans(text) else 0.0)
    assert bool(parse_spans(text)) == (float(f"{start:.4f}") < float(f"{start + length:.4f}"))
