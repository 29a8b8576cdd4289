"""Cold-start conversations against the known events and the frames that read_frames really gives."""

import itertools
import json
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest

from data_prep.clips import Event
from data_prep.errors import InputError
from data_prep.sampling import sampled_seconds
from data_prep.schema import sft_schema
from data_prep.synthetic import SyntheticSettings, plan_clip, plan_questions, vocabulary_texts
from data_prep.transcripts import cold_start_rows, equal_windows, sightings, summary_text
from paravt_tools import CropWindow, parse_tool_calls, read_frames
from reward_fns import Transcript, extract_answer, mcq_accuracy, temporal_iou, token_f1

SETTINGS = SyntheticSettings(num_videos=80, max_duration_seconds=60)
ASKED = [
    (clip, question)
    for clip in (plan_clip(SETTINGS, index) for index in range(SETTINGS.num_videos))
    for question in plan_questions(SETTINGS, clip)
]
BY_ID = {question.question_id: (clip, question) for clip, question in ASKED}
ROWS = cold_start_rows(ASKED, 400, 0.8, seed=3)
MAIN = [row for row in ROWS if row["agent"] == "main"]
SUBAGENT = {
    (row["question_id"], row["videos"][0]["start_seconds"], row["videos"][0]["end_seconds"]): row
    for row in ROWS
    if row["agent"] == "subagent"
}


def score(row):
    clip, question = BY_ID[row["question_id"]]
    answer = extract_answer(row["messages"][-1]["content"])
    if question.question_type == "mcq":
        return mcq_accuracy(answer, question.answer, question.options)
    if question.question_type == "tvg":
        return temporal_iou(answer, question.answer, clip.duration_seconds)
    return token_f1(answer, question.answer)


def test_the_share_with_calls_is_the_one_asked_for():
    for share in (0.0, 0.25, 0.8, 1.0):
        main = [row for row in cold_start_rows(ASKED, 200, share, seed=0) if row["agent"] == "main"]
        assert len(main) == 200
        assert sum(len(row["messages"]) > 2 for row in main) == round(200 * share)
    with pytest.raises(InputError, match=r"tool share is 1\.5"):
        cold_start_rows(ASKED, 1, 1.5, seed=0)


def test_calls_cut_the_whole_video_into_equal_windows():
    counts = Counter()
    for row in (row for row in MAIN if len(row["messages"]) > 2):
        clip, _ = BY_ID[row["question_id"]]
        parsed = parse_tool_calls(row["messages"][1]["content"])
        assert not parsed.errors
        windows = [CropWindow.from_arguments(call.arguments, clip.duration_seconds) for call in parsed.calls]
        counts[len(windows)] += 1
        assert windows[0].start_seconds == 0 and windows[-1].end_seconds == clip.duration_seconds
        for one, next_one in itertools.pairwise(windows):
            assert one.end_seconds == next_one.start_seconds
        lengths = [window.end_seconds - window.start_seconds for window in windows]
        assert max(lengths) - min(lengths) < 0.21
    assert set(counts) == {2, 3} and min(counts.values()) > 60


def test_tool_messages_are_the_words_of_the_sub_agents():
    heard = 0
    for row in (row for row in MAIN if len(row["messages"]) > 2):
        calls = parse_tool_calls(row["messages"][1]["content"]).calls
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant", *["tool"] * len(calls), "assistant"]
        for call, message in zip(calls, row["messages"][2:-1], strict=True):
            window = (call.arguments["start_time"], call.arguments["end_time"])
            subagent = SUBAGENT.get((row["question_id"], *window))
            if subagent is None:
                continue  # one sub-agent of each turn has a row of its own
            heard += 1
            assert subagent["messages"][-1] == {"role": "assistant", "content": message["content"]}
            assert subagent["videos"][0]["nframes"] == min(16, -int(-(window[1] - window[0]) // 1))
    assert heard >= len(SUBAGENT) > 200


def test_answers_earn_their_reward():
    by_type = {"oe": [], "mcq": [], "tvg": []}
    for row in MAIN:
        by_type[BY_ID[row["question_id"]][1].question_type].append(score(row))
    assert set(by_type["oe"]) == set(by_type["mcq"]) == {1.0}
    spans = by_type["tvg"]
    assert sum(spans) / len(spans) > 0.7
    assert sum(span >= 0.5 for span in spans) / len(spans) > 0.9


def test_every_turn_is_well_formed():
    for row in MAIN:
        turns = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert all(turn.startswith("<think>\n") and turn.count("</think>") == 1 for turn in turns)
        assert all(len(turn.split("</think>")[0].removeprefix("<think>\n")) >= 10 for turn in turns)
        text = "".join(f"<|im_start|>assistant\n{turn}<|im_end|>\n" for turn in turns)
        assert len(Transcript.from_text(text).turns) == len(turns)


def test_the_last_thinking_is_copied_from_a_summary_or_joins_two():
    joined = 0
    for row in (row for row in MAIN if len(row["messages"]) > 2):
        facts = "; ".join(message["content"].split(": ", 1)[1] for message in row["messages"][2:-1])
        thinking = re.search(r"<think>\nw\w+: (.*?)(\. [A-D]\. \w+)?</think>", row["messages"][-1]["content"]).group(1)
        if thinking not in facts:
            joined += 1
            what, times = thinking.split(" from ")
            start, end = times.split(" to ")
            assert f"{what} from {start} to " in facts and f" to {end}" in facts
            assert facts.count(what) > 1
    assert 0 < joined < 0.3 * len(MAIN)


def test_a_direct_answer_is_visible_in_the_overview():
    direct = [row for row in MAIN if len(row["messages"]) == 2]
    assert len(direct) == 80
    assert {row["videos"][0]["nframes"] for row in direct} >= {16, 32, 64}
    for row in direct:
        clip, question = BY_ID[row["question_id"]]
        times = sampled_seconds(clip.num_frames, clip.duration_seconds, row["videos"][0]["nframes"])
        event = question.event
        shown = [time for time in times if event.start_seconds <= time < event.end_seconds]
        assert len(shown) >= (2 if question.question_type == "tvg" else 1)


@pytest.mark.parametrize(
    ("times", "text", "why"),
    [
        (
            [0.0, 1.5, 2.0, 3.0, 4.5, 6.0],
            "red circle top left from 2.0 to 4.5",
            "first to the next after the last",
        ),
        ([0.0, 1.0, 2.5, 3.0], "red circle top left from 2.5 to 3.0", "nothing follows: to the last itself"),
        ([0.0, 1.0, 3.5], "red circle top left from 1.0 to 3.5", "only the last: from the frame before"),
        ([3.5], "red circle top left from 3.5 to 3.5", "a single frame bounds nothing"),
        ([0.0, 1.9, 4.0, 5.0], "nothing visible", "the end is not part of the event"),
        ([], "nothing visible", "no frames"),
    ],
)
def test_summary_rule(times, text, why):
    seen = sightings([Event("red", "circle", "top left", 2.0, 4.0)], times)
    assert summary_text("tvg", seen) == f"when: {text}", why


def test_windows_end_inside_a_video_of_odd_length():
    windows = equal_windows(31.031, 3)
    assert [(window.start_seconds, window.end_seconds) for window in windows] == [
        (0, 10.3),
        (10.3, 20.7),
        (20.7, 31.0),
    ]
    assert [window.num_frames for window in windows] == [11, 11, 11]


def test_sampled_times_are_those_of_read_frames(shapes, lines):
    """The conversations say what frames show; these must be the frames that training really reads."""
    table = pq.read_table(shapes / "sft-00000.parquet")
    assert table.schema.equals(sft_schema())
    facts = {line["video"]: line for line in lines}
    for row in table.to_pylist():
        (video,) = row["videos"]
        line = facts[video["video"]]
        start, end = video["start_seconds"] or 0.0, video["end_seconds"]
        batch = read_frames(
            shapes / video["video"],
            video["nframes"],
            start,
            end,
            min_pixels=video["min_pixels"],
            max_pixels=video["max_pixels"],
        )
        expected = sampled_seconds(line["num_frames"], line["duration_seconds"], video["nframes"], start, end)
        assert batch.timestamps_seconds.tolist() == pytest.approx(expected)
        assert batch.images.shape[1:] == (64, 64, 3)


def test_user_messages_are_those_of_rl(lines):
    for row in MAIN:
        _, question = BY_ID[row["question_id"]]
        content = row["messages"][0]["content"]
        assert content.startswith(f"<video>\n{question.text}")
        assert ("\nA. " in content) == (question.question_type == "mcq")
    for (question_id, _, _), row in SUBAGENT.items():
        assert row["messages"][0]["content"] == f"<video>\n{BY_ID[question_id][1].text}"


def test_vocabulary_holds_every_word_of_the_conversations():
    texts = vocabulary_texts()
    assert texts == vocabulary_texts()
    words = set(re.findall(r"[a-zA-Z_]+|[^\sa-zA-Z\d]", " ".join(texts)))
    for row in ROWS:
        for message in row["messages"]:
            assert set(re.findall(r"[a-zA-Z_]+|[^\sa-zA-Z\d]", message["content"])) <= words, message
    assert json.dumps(texts).count("crop_video") == 15
