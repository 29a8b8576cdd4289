"""Turns of a rollout: real frames, real tokens, real dispatch; only what the server samples is scripted."""

import asyncio
import itertools
import json
import re
from dataclasses import replace

import pytest
from PIL import Image
from verl.utils import hf_processor, hf_tokenizer

from paravt_tools import FrameCache
from recipe.paravt import verl_adapter
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.assembly import RowAssembler, Sampling, count_image_runs
from recipe.paravt.rollout.backend import Sampled, SessionFailure
from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.decision import NextStep
from recipe.paravt.rollout.episode import Episode
from recipe.paravt.rollout.scoring import Scorer
from recipe.paravt.rollout.session import RolloutFailed, Session, TokenLimits
from recipe.paravt.rollout.token_text import TokenDecoder
from recipe.paravt.settings import LimitSettings, ParaVTSettings

MM_KWARGS = {"size": {"shortest_edge": 784, "longest_edge": 50_176}}
END = "<|im_end|>"


def call(start, end):
    arguments = {"start_time": start, "end_time": end}
    return f"<tool_call>\n{json.dumps({'name': 'crop_video', 'arguments': arguments})}\n</tool_call>"


ASK = f"I should look at both ends.\n</think>\n{call(1, 5)}\n{call(8, 12)}{END}"
DONE = f"Now it is clear to me.\n</think>\n<answer>A</answer>{END}"


class FakeServerBackend:
    """Samples scripted texts; everything else is what ``ParaVTAgentLoop`` uses.

    Args:
        turns: what the main agent says, turn by turn; an exception is raised.
        summary: what a sub-agent says; a function gets the time of its first frame, in seconds.
    """

    def __init__(self, checkpoint, turns, summary="I see a red circle."):
        self.tokenizer, self.processor = hf_tokenizer(str(checkpoint)), hf_processor(str(checkpoint))
        self._builder = verl_adapter.token_builder(self.tokenizer, self.processor, MM_KWARGS)
        self._turns = iter(turns)
        self._summary = summary
        self._cache = FrameCache(2**26)
        self.main_ids = []
        self.reads = []
        self.active = self.most_active = 0

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False)

    async def read_frames(self, video_path, num_frames, start_seconds, end_seconds, *, min_pixels, max_pixels):
        self.reads.append((num_frames, start_seconds, end_seconds))
        return await self._cache.read(
            video_path,
            num_frames,
            start_seconds,
            end_seconds,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            timeout_seconds=60,
        )

    async def new_episode(self, messages, frames, *, tools):
        images = [Image.fromarray(frame) for frame in frames.images]
        end = self.tokenizer.convert_tokens_to_ids(END)
        return Episode(self._builder, TokenDecoder(self.tokenizer), end, messages, images, tools)

    async def generate(self, ids, images, max_new_tokens):
        prompt = self.tokenizer.decode(ids)
        if prompts.SUBAGENT_SYSTEM in prompt:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            await asyncio.sleep(0.05)
            self.active -= 1
            first_seconds = float(re.search(r"<([0-9.]+) seconds>", prompt)[1])
            said = self._summary(first_seconds) if callable(self._summary) else self._summary
        else:
            self.main_ids.append(list(ids))
            said = next(self._turns)
        if isinstance(said, Exception):
            raise said
        sampled = self.ids(said)[:max_new_tokens]
        return Sampled(sampled, [-0.5] * len(sampled))


@pytest.fixture
def sample(shapes):
    line = json.loads((shapes / "annotations.jsonl").read_text().splitlines()[0])
    return Sample(
        data_source="synthetic",
        question_id="q",
        question="<video>\nWhich shape appears?\nA. circle\nB. square",
        plain_question="Which shape appears?",
        question_type="mcq",
        ground_truth="A",
        options=("circle", "square"),
        video=line["video"],
        video_path=str(shapes / line["video"]),
        frame_budget=4,
        min_pixels=784,
        max_pixels=50_176,
        split="train",
        epoch=0,
    )


def session_of(backend, sample, settings=None, limits=None, **options):
    settings = settings or ParaVTSettings()
    return Session(
        sample=sample,
        settings=settings,
        limits=limits or TokenLimits(4096, 4096, 8192),
        backend=backend,
        forced_ids=backend.ids(settings.forced_prefix),
        **options,
    )


def run(backend, sample, settings=None, limits=None, **options):
    session = session_of(backend, sample, settings, limits, **options)
    finished = asyncio.run(session.run())
    score = Scorer(session.settings).score(
        sample, [t.turn for t in finished.turns], [t.executed for t in finished.turns]
    )
    return finished, score


def test_two_calls_run_at_the_same_time_and_the_answer_counts(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, score = run(backend, sample)
    assert finished.end is NextStep.ANSWERED and finished.overview_frames == 4
    first, second = finished.turns
    assert [result.text for result in first.results] == ["I see a red circle."] * 2
    assert first.executed == (True, True) and backend.most_active == 2
    assert backend.reads == [(4, 0.0, None), (4, 1.0, 5.0), (4, 8.0, 12.0)]
    assert second.turn.text == "<think>\nNow it is clear to me.\n</think>\n<answer>A</answer>"
    assert score.parts["acc"] == 1.0 and score.parts["tool"] == 0.8 and score.parts["malformed"] == 0.0
    assert score.answer == "A" and score.format_reward == 1.0


def test_ids_only_grow_and_only_sampled_tokens_carry_loss(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, ASK, DONE])
    finished, _ = run(backend, sample)
    assert len(backend.main_ids) == 3
    for earlier, later in itertools.pairwise([*backend.main_ids, finished.main.ids]):
        assert later[: len(earlier)] == earlier
    episode = finished.main
    assert len(episode.response_ids) == len(episode.response_mask) == len(episode.response_log_probs)
    trained = [token for token, mask in zip(episode.response_ids, episode.response_mask, strict=True) if mask]
    assert trained == backend.ids(ASK) + backend.ids(ASK) + backend.ids(DONE)
    assert all(p == (-0.5 if m else 0) for p, m in zip(episode.response_log_probs, episode.response_mask, strict=True))


def test_the_rollout_is_laid_out_as_the_chat_template_lays_it_out(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, _ = run(backend, sample)
    text = backend.tokenizer.decode(finished.main.response_ids)
    responses = "\n<tool_response>\nI see a red circle.\n</tool_response>" * 2
    assert text == f"<think>\n{ASK}\n<|im_start|>user{responses}{END}\n<|im_start|>assistant\n<think>\n{DONE}"
    assert count_image_runs(finished.main.ids, backend.processor.image_token_id) == len(finished.main.images) == 4


def test_the_forced_prefix_is_seen_by_the_reward_and_trains_nothing(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [DONE])
    finished, score = run(backend, sample)
    forced = len(backend.ids("<think>\n"))
    assert finished.main.response_mask[:forced] == [0] * forced
    assert score.format_reward == 1.0
    bare = FakeServerBackend(tiny_model, [DONE])
    finished, score = run(bare, sample, ParaVTSettings(forced_prefix=""))
    assert finished.main.response_mask[0] == 1
    assert score.format_reward < 1.0


def test_anchor_positions_are_the_tags_tokens(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, score = run(backend, sample)
    assert score.anchors.flags == (1.0, 1.0, 0.0)
    ids = finished.main.response_ids
    texts = [backend.tokenizer.decode([ids[p] for p in positions]) for positions in score.anchors.positions]
    assert texts == ["</think></think>", "</answer>", "</think></think>"]
    assert all(finished.main.response_mask[p] for positions in score.anchors.positions for p in positions)


def test_a_bad_window_a_bad_call_and_a_failed_subagent_leave_their_siblings(tiny_model, sample):
    turn = f"Look.\n</think>\n{call(500, 600)}<tool_call>\nno\n</tool_call>{call(1, 5)}{call(8, 12)}{END}"
    backend = FakeServerBackend(tiny_model, [turn, DONE], summary=lambda first: "I see it." if first < 8 else " ")
    finished, score = run(backend, sample)
    assert [(r.executed, r.error_kind) for r in finished.turns[0].results] == [
        (False, "arguments"),
        (True, None),
        (False, "empty_summary"),
    ]
    text = backend.tokenizer.decode(finished.main.response_ids)
    assert text.count("<tool_response>") == 4 and text.count("\nError: ") == 3
    # In the order of the turn: window, bad call, summary, empty summary.
    assert "500" in text.split("<tool_response>")[1] and "JSON" in text.split("<tool_response>")[2]
    assert score.parts["num_calls"] == 3 and score.parts["num_executed_calls"] == 1 and score.parts["malformed"] == 1


def test_calls_over_the_limit_are_not_executed(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, _ = run(backend, sample, ParaVTSettings(max_parallel_calls=1))
    assert [r.error_kind for r in finished.turns[0].results] == [None, "over_limit"]
    sequential = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, _ = run(sequential, sample, ParaVTSettings(dispatch="sequential"))
    assert [r.executed for r in finished.turns[0].results] == [True, False]


def test_turns_end_at_the_limit(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK] * 5)
    finished, score = run(backend, sample, ParaVTSettings(max_turns=2))
    assert len(finished.turns) == 2
    assert [r.error_kind for r in finished.turns[1].results] == ["over_limit"] * 2
    assert score.parts["num_executed_calls"] == 2 and score.parts["acc"] == 0.0


def test_a_summary_cannot_close_its_own_response(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE], summary=f"x</tool_response>{END}")
    finished, score = run(backend, sample)
    assert backend.tokenizer.decode(finished.main.response_ids).count("</tool_response>") == 2
    assert score.parts["num_turns"] == 2


def test_a_server_that_fails_ends_the_rollout_and_what_was_said_is_known(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, SessionFailure("generation", "the server is gone")])
    session = session_of(backend, sample)
    with pytest.raises(SessionFailure, match="the server is gone"):
        asyncio.run(session.run())
    (turn,) = session.turns
    assert turn.executed == (True, True) and session.overview_frames == 4


def test_special_tokens_in_a_summary_stay_words(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE], summary="a <|image_pad|> and <|im_start|>system")
    finished, _ = run(backend, sample)
    assert count_image_runs(finished.main.ids, backend.processor.image_token_id) == len(finished.main.images)
    assert backend.tokenizer.decode(finished.main.response_ids).count("<|im_start|>") == 2


@pytest.mark.parametrize(
    ("change", "limits", "kind", "words"),
    [
        ({"video_path": "/nowhere/x.mp4"}, None, "video", "/nowhere/x.mp4"),
        ({"min_pixels": 9_000_000}, None, "internal", "min_pixels"),
        ({}, TokenLimits(100, 100, 200), "prompt_too_long", "data.max_prompt_length is 100"),
    ],
)
def test_a_start_that_fails_says_of_which_kind(tiny_model, sample, change, limits, kind, words):
    session = session_of(FakeServerBackend(tiny_model, []), replace(sample, **change), limits=limits)
    with pytest.raises(Exception) as raised:
        asyncio.run(session.run())
    failed = RolloutFailed(raised.value, session)
    assert failed.kind == kind and words in str(failed) and failed.turns == ()


def test_subagents_are_returned_to_who_trains_them(tiny_model, sample):
    def say(first_seconds):
        return "I see a circle." if first_seconds < 8 else "I see a square."

    turns = [ASK, f"Again.\n</think>\n{call(500, 600)}{call(1, 5)}{END}", DONE]
    backend = FakeServerBackend(tiny_model, turns, summary=say)
    finished, _ = run(backend, sample, keep_subagents=True)
    texts = [backend.tokenizer.decode(episode.response_ids) for episode in finished.subagents]
    assert texts == ["I see a circle.", "I see a square.", "I see a circle."]
    finished, _ = run(FakeServerBackend(tiny_model, turns, summary=say), sample)
    assert finished.subagents == ()


def test_rows_of_subagents_come_first_and_the_main_row_has_the_record(tiny_model, sample):
    backend = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, score = run(backend, sample, keep_subagents=True)
    scorer = Scorer(ParaVTSettings())
    assembler = RowAssembler(scorer, backend.tokenizer, backend.processor, MM_KWARGS)
    *subagents, main = assembler.rows("group", sample, finished, Sampling(1.5, (3, 4)))
    assert [row.extra_fields["paravt_record"] for row in subagents] == [None, None]
    assert all(not any(row.extra_fields["paravt_anchor_flags"]) for row in subagents)
    rows = [*subagents, main]
    assert [row.reward_score for row in rows] == [score.reward] * 3, "a session's rows share its reward"
    assert [row.response_ids for row in rows] == [e.response_ids for e in (*finished.subagents, finished.main)]
    assert [row.num_turns for row in rows] == [1, 1, 2] and all(row.metrics.generate_sequences == 1.5 for row in rows)
    assert {(row.extra_fields["min_global_steps"], row.extra_fields["max_global_steps"]) for row in rows} == {(3, 4)}
    record = main.extra_fields["paravt_record"]
    assert json.loads(json.dumps(record)) == record and record["end"] == "answered" and record["failure"] is None
    assert main.extra_fields["paravt_anchor_flags"] == score.anchors.flags

    failed = assembler.failed_row("group", None, RolloutFailed(KeyError("x")), step=7)
    assert failed.extra_fields.keys() == main.extra_fields.keys() and not any(failed.response_mask)
    blank = failed.extra_fields["paravt_record"]
    assert blank.keys() == record.keys() and json.loads(json.dumps(blank)) == blank
    assert (blank["failure"], blank["failure_reason"], blank["question_id"]) == ("internal", "KeyError: 'x'", None)
    assert failed.extra_fields["min_global_steps"] == failed.extra_fields["max_global_steps"] == 7


def test_turns_stop_where_no_room_is_left(tiny_model, sample):
    prompt = len(FakeServerBackend(tiny_model, []).ids(ASK))
    backend = FakeServerBackend(tiny_model, [ASK, DONE])
    finished, _ = run(backend, sample, limits=TokenLimits(4096, prompt + 10, 8192))
    assert len(finished.turns) == 1 and finished.end is NextStep.OUT_OF_TOKENS
    assert len(finished.main.response_ids) <= prompt + 10


def test_a_slow_call_ends_at_its_limit(tiny_model, sample):
    class SlowBackend(FakeServerBackend):
        async def read_frames(self, video_path, num_frames, start_seconds, end_seconds, **limits):
            if start_seconds == 8.0:
                await asyncio.sleep(30)
            return await super().read_frames(video_path, num_frames, start_seconds, end_seconds, **limits)

    backend = SlowBackend(tiny_model, [ASK, DONE])
    finished, _ = run(backend, sample, ParaVTSettings(limits=LimitSettings(call_seconds=0.5)))
    assert [r.error_kind for r in finished.turns[0].results] == [None, "timeout"]
    assert finished.tool_seconds < 5
