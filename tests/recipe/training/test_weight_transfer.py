"""The weight transfer: what is sent arrives, and whoever is not there is not waited for."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from recipe.paravt.lifecycle.leftovers import of_run
from recipe.paravt.rollout.agent_loop import ParaVTAgentLoop
from recipe.paravt.settings import ParaVTSettings

pytest.importorskip("vllm")

RUN = "0a1b2c3d4e5f"
# In a process of its own, as one of a CPU run: verl decides on its platform when it is imported.
CODE = """
import asyncio, os, sys, threading
from types import SimpleNamespace
import torch
from verl.workers.rollout.vllm_rollout import vllm_rollout
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from recipe.paravt.training import weight_transfer
from recipe.paravt.training.weight_transfer import RunServerAdapter, WeightSender
handle = "ipc://" + sys.argv[1] + "/socket"
weights = [("a", torch.arange(6.0).view(2, 3)), ("b", torch.ones(300_000)), ("c", torch.zeros(1, dtype=torch.int64))]
assert vllm_rollout.BucketedWeightSender is WeightSender

def receive():
    receiver = BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
    receiver.receive_weights(lambda weights, _: received.update((name, value.clone()) for name, value in weights))

for delay in (0.0, 1.0):
    received = {}
    thread = threading.Timer(delay, receive)
    thread.start()
    asyncio.run(WeightSender(handle, bucket_size_mb=2, use_shm=True).async_send_weights(iter(weights)))
    thread.join()
    assert list(received) == ["a", "b", "c"]
    assert all(torch.equal(received[name], value) for name, value in weights)
print("arrived")

weight_transfer.ANSWER_SECONDS = 0.3
class AdapterWithoutServer(RunServerAdapter):
    def __init__(self):
        self.zmq_handle, self.use_shm, self._has_server = handle, True, False
        self.replica_rank, self.rollout_rank, self.server_handle = 0, 1, None
        self.config = SimpleNamespace(checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=1))
try:
    asyncio.run(AdapterWithoutServer().update_weights(iter(weights[:1])))
except TimeoutError as error:
    print(error)

memory = os.statvfs("/dev/shm")
more_than_there_is = (memory.f_bavail * memory.f_frsize >> 20) + 64
try:
    asyncio.run(WeightSender(handle, more_than_there_is, use_shm=True).async_send_weights(iter(weights)))
except MemoryError as error:
    print(error)
"""


def test_weights_arrive_or_an_error_says_why(tmp_path):
    marks = {"PARAVT_RUN_ID": RUN, "VERL_PLATFORM": "paravt_cpu", "CUDA_VISIBLE_DEVICES": "0"}
    command = [sys.executable, "-c", CODE, tmp_path]
    result = subprocess.run(command, env=os.environ | marks, capture_output=True, text=True, timeout=180, cwd="/")
    assert result.returncode == 0, result.stderr[-3000:]
    arrived, absent, full = [line for line in result.stdout.splitlines() if "INFO" not in line][-3:]
    assert arrived == "arrived"
    assert absent == "vLLM's worker has not taken a bucket of weights for 0.3 s: it died or hangs"
    assert full.startswith("no room in /dev/shm") and "update_weights_bucket_megabytes" in full
    assert of_run(RUN, tmp_path / f"paravt-{RUN}") + list(tmp_path.iterdir()) == []


def test_seeds_differ_by_rollout_and_request_and_not_by_time():
    def seed(sampling_seed, name, ids):
        loop = SimpleNamespace(settings=ParaVTSettings(sampling_seed=sampling_seed), _rollout_name=name)
        return ParaVTAgentLoop._seed(loop, ids)

    assert seed(None, "step1-00000/0", [1]) == {}
    first = seed(0, "step1-00000/0", [1, 2])
    assert first == seed(0, "step1-00000/0", [1, 2]) and 0 <= first["seed"] < 2**32
    others = [seed(1, "step1-00000/0", [1, 2]), seed(0, "step1-00000/1", [1, 2]), seed(0, "step1-00000/0", [1, 2, 3])]
    assert len({first["seed"], *(other["seed"] for other in others)}) == 4
