"""The guard around a rollout: verl's worker with our loop, on real rows and videos, where one thing goes wrong.

Only what stands outside of the process is faked: the server, and the transfer queue that takes the rows.
"""

import asyncio
import copy
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import collate_fn
from verl.workers.rollout.replica import TokenOutput

from recipe.paravt import main
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.dataset import ParaVTDataset
from recipe.paravt.rollout.scoring import Scorer
from recipe.paravt.rollout.worker import ParaVTAgentLoopWorker

END = "<|im_end|>"
CALL = '<tool_call>\n{"name": "crop_video", "arguments": {"start_time": %d, "end_time": %d}}\n</tool_call>'
ASK = f"I should look at both ends.\n</think>\n{CALL % (1, 5)}{CALL % (8, 12)}{END}"
DONE = f"Now it is clear to me.\n</think>\n<answer>A</answer>{END}"
MARK = "Look twice."
"""Stands in the question of the prompt whose rollouts go wrong."""
SESSIONS = 2


class FakeLLMClient:
    """In place of the server: two calls, then an answer.

    Attributes:
        fault: awaited with the frames of each request of the marked prompt's main agent: raises, changes them, or
            returns what is answered in place of the script (None: the script).
    """

    tokenizer = None
    fault = None

    async def generate(self, request_id, *, prompt_ids, sampling_params, image_data, mm_processor_kwargs):
        prompt = self.tokenizer.decode(prompt_ids)
        if self.fault and MARK in prompt and (answer := await self.fault(image_data)):
            return answer
        if prompts.SUBAGENT_SYSTEM in prompt:
            return self.answer(f"I see a red circle.{END}")
        return self.answer(DONE if "<tool_response>" in prompt else ASK)

    def answer(self, text, **other):
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return TokenOutput(**{"token_ids": ids, "log_probs": [-0.5] * len(ids), "stop_reason": "completed", **other})


@dataclass
class FakeTransferQueue:
    """In place of ``transfer_queue``, which needs Ray: keeps what it is given."""

    rows: dict = field(default_factory=dict)
    partitions: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)

    def init(self):
        pass

    async def async_kv_put(self, key, partition_id, tag):
        self.groups[key] = tag["status"]

    async def async_kv_batch_put(self, keys, fields, tags, partition_id):
        for position, key in enumerate(keys):
            self.rows[key] = fields[position].to_dict()
            self.partitions[key] = partition_id


class Rollouts:
    """Makes rollouts of two prompts, ``good`` and ``marked``.

    Attributes:
        queue: that takes them.
        changes: columns of the marked row.
    """

    def __init__(self, worker, client, rows, monkeypatch):
        self.worker, self.client, self._monkeypatch = worker, client, monkeypatch
        self.good, self.marked = rows
        self.queue = FakeTransferQueue()
        self.changes = {}

    async def run(self, validate=False):
        """One batch of both, as the trainer sends it."""
        batch = collate_fn([self.good, {**self.marked, **self.changes}])
        batch["uid"] = np.array(["good", "marked"], dtype=object)
        batch = tensordict_utils.get_tensordict(batch)
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", 3)
        tensordict_utils.assign_non_tensor_data(batch, "validate", validate)
        self._monkeypatch.setattr(agent_loop_tq, "tq", self.queue)
        await self.worker.generate_sequences(batch)
        await asyncio.wait_for(asyncio.gather(*self.worker.background_tasks), 60)

    async def compare(self, break_it, **arguments):
        """Runs the batch as it is, then after ``break_it(self)``; returns what the queue got then.

        Holds for every fault: verl takes both groups for finished, with all of their rows; the rows of a rollout that
        failed are blank and of the same fields; all others are as they were.
        """
        await self.run(**arguments)
        before, self.queue = self.queue.rows, FakeTransferQueue()
        assert [record["failure"] for record in records(before)] == [None] * 2 * SESSIONS
        break_it(self)
        await self.run(**arguments)
        assert self.queue.groups == {"good": "finished", "marked": "finished"}
        assert self.queue.rows.keys() == before.keys()
        for key, row in self.queue.rows.items():
            assert row.keys() == before[key].keys()
            assert row["multi_modal_inputs"].keys() == before[key]["multi_modal_inputs"].keys()
            record = row["extra_fields"]["paravt_record"]
            if record["failure"]:
                assert key.startswith("marked")
                assert not row["response_mask"].any() and not row["rm_scores"].any()
                assert record.keys() == before[key]["extra_fields"]["paravt_record"].keys()
                assert json.loads(json.dumps(record)) == record
            else:
                tensors = [name for name, value in row.items() if isinstance(value, torch.Tensor)]
                assert all(torch.equal(row[name], before[key][name]) for name in tensors)
        return self.queue


def records(rows, group=""):
    """Of the rollouts of a prompt, by session."""
    return [rows[key]["extra_fields"]["paravt_record"] for key in sorted(rows) if key.startswith(group)]


def config_of(rows, tiny_model, *overrides):
    number = (f"actor_rollout_ref.rollout.n={SESSIONS}", f"actor_rollout_ref.rollout.val_kwargs.n={SESSIONS}")
    paths = (f"actor_rollout_ref.model.path={tiny_model}", f"paravt.video_root={rows}")
    with initialize_config_dir(str(Path(main.__file__).parent / "config"), version_base=None):
        return compose("para_grpo", ["device=cpu", *number, *paths, *overrides])


@pytest.fixture(scope="module")
def dataset_rows(rows, tiny_model):
    """Two multiple-choice rows of the data set, the second one marked."""
    file = rows / "rl" / "rl-epoch0-00000.parquet"
    dataset = ParaVTDataset([str(file)], None, config_of(rows, tiny_model).data, None)
    items = [dataset[index] for index in range(len(dataset.dataframe))]
    good, marked, *_ = (item for item in items if item["extra_info"]["question_type"] == "mcq")
    marked["raw_prompt"][-1]["content"] += f" {MARK}"
    return good, marked


@pytest.fixture
def make_rollouts(rows, tiny_model, dataset_rows, monkeypatch):
    def make(*overrides):
        monkeypatch.setattr(agent_loop_tq, "tq", FakeTransferQueue())
        client = FakeLLMClient()
        worker = ParaVTAgentLoopWorker(config_of(rows, tiny_model, *overrides), client)
        client.tokenizer = worker.tokenizer
        return Rollouts(worker, client, dataset_rows, monkeypatch)

    return make


# ---- what breaks all rollouts of a prompt ------------------------------------------------------------------------


def change(column, new_value):
    """``new_value`` makes the marked row's column of what it is."""

    def break_it(rollouts):
        rollouts.changes = {column: new_value(copy.deepcopy(rollouts.marked[column]))}

    return break_it


def let_server(fault):
    """``fault(client, images)``: see ``FakeLLMClient``."""

    def break_it(rollouts):
        async def of_request(images):
            return await fault(rollouts.client, images)

        rollouts.client.fault = of_request

    return break_it


async def never_answer(client, images):
    await asyncio.sleep(3600)


async def fail(client, images):
    raise ConnectionError("the server is gone")


async def abort(client, images):
    return client.answer("", stop_reason="aborted")


async def sample_an_image(client, images):
    return client.answer("<|image_pad|>")


async def lose_a_frame(client, images):
    images.pop()


def without(name):
    return lambda extra_info: {key: value for key, value in extra_info.items() if key != name}


def with_type(question_type):
    return lambda extra_info: {**extra_info, "question_type": question_type}


def with_video(name):
    return lambda videos: [{**videos[0], "video": name}]


@pytest.mark.parametrize(
    ("break_it", "kind", "words", "overrides"),
    [
        pytest.param(*case, id=name)
        for name, case in {
            "two videos": (change("paravt_videos", lambda videos: videos * 2), "row", "one video, this one has 2", ()),
            "no id": (change("extra_info", without("question_id")), "row", "no 'question_id'; rows are made by", ()),
            "no row": (change("extra_info", lambda _: None), "row", "none of python -m data_prep rl", ()),
            "video": (change("paravt_videos", with_video("annotations.jsonl")), "video", "annotations.jsonl", ()),
            "question type": (change("extra_info", with_type("essay")), "internal", "'essay'", ()),
            "loop": (change("agent_name", lambda _: "nobody"), "internal", "nobody not registered", ()),
            "server": (let_server(fail), "generation", "ConnectionError: the server is gone", ()),
            "aborted": (let_server(abort), "generation", "nothing was sampled (stop reason aborted)", ()),
            "placeholder": (let_server(sample_an_image), "media_token", "a placeholder of an image", ()),
            "frames": (let_server(lose_a_frame), "internal", "has 2 images, but its ids hold 4", ()),
            "no answer": (
                *(let_server(never_answer), "generation_timeout", "no answer in 0.5 s"),
                ("paravt.limits.generation_seconds=0.5",),
            ),
            "no end": (
                *(let_server(never_answer), "session_timeout", "no end in paravt.limits.session_seconds=6"),
                ("paravt.limits.session_seconds=6",),
            ),
        }.items()
    ],
)
async def test_what_goes_wrong_is_a_counted_row_and_its_neighbours_stay(
    make_rollouts, break_it, kind, words, overrides
):
    queue = await make_rollouts(*overrides).compare(break_it)
    for record in records(queue.rows, "marked"):
        assert record["failure"] == kind and words in record["failure_reason"]
        assert record["question_id"] is None if kind == "row" else record["question_id"]
    assert len(records(queue.rows, "marked")) == SESSIONS


# ---- what breaks one rollout of a group --------------------------------------------------------------------------


def once(function, error, applies=lambda *_: True):
    """``function``, whose first call (of those that it applies to) raises."""
    left = [error]

    def broken(*args, **kwargs):
        if left and applies(*args):
            raise left.pop()
        return function(*args, **kwargs)

    return broken


def break_scoring(rollouts, monkeypatch):
    broken = once(Scorer.score, KeyError("format"), lambda _, sample, *rest: MARK in sample.question)
    monkeypatch.setattr(Scorer, "score", broken)


def break_postprocessing(rollouts, monkeypatch):
    worker = rollouts.worker
    broken = once(
        worker._compute_position_ids,
        RuntimeError("no positions"),
        lambda ids, *_: MARK in worker.tokenizer.decode(ids[0]),
    )
    monkeypatch.setattr(worker, "_compute_position_ids", broken)


def break_put(rollouts, monkeypatch):
    # verl's own TimeoutError is none of the session's.
    error = TimeoutError("the queue does not answer")
    broken = once(rollouts.queue.async_kv_batch_put, error, lambda keys, *_: keys == ["marked_1_0"])
    monkeypatch.setattr(rollouts.queue, "async_kv_batch_put", lambda **kwargs: broken(kwargs.pop("keys"), **kwargs))


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (break_scoring, "KeyError: 'format'"),
        (break_postprocessing, "RuntimeError: no positions"),
        (break_put, "TimeoutError: the queue does not answer"),
    ],
)
async def test_a_rollout_that_fails_late_leaves_the_others_of_its_group(make_rollouts, monkeypatch, break_it, reason):
    queue = await make_rollouts().compare(lambda rollouts: break_it(rollouts, monkeypatch))
    failed = [record for record in records(queue.rows, "marked") if record["failure"]]
    assert [(record["failure"], record["failure_reason"]) for record in failed] == [("internal", reason)]


async def test_a_validation_rollout_that_fails_is_one_too(make_rollouts):
    rollouts = make_rollouts()
    queue = await rollouts.compare(let_server(fail), validate=True)
    assert set(queue.partitions.values()) == {"val"}
    assert [record["failure"] for record in records(queue.rows, "marked")] == ["generation"] * SESSIONS


async def test_what_was_said_before_the_server_failed_is_in_the_record(make_rollouts):
    requests = itertools.count()

    async def fail_on_the_second_turn(client, images):
        if next(requests) >= SESSIONS:
            raise ConnectionError("gone")

    queue = await make_rollouts().compare(let_server(fail_on_the_second_turn))
    for record in records(queue.rows, "marked"):
        assert record["failure"] == "generation" and record["overview_frames"] == record["frame_budget"]
        assert [call["executed"] for call in record["turns"][0]["calls"]] == [True, True]
        assert record["reward"] == record["num_calls"] == 0.0
