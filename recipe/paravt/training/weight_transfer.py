"""verl's vLLM server, replica and adapter, with a weight transfer that cannot hang and meets no other run's."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter
from zmq import constants
from zmq.error import Again

from recipe.paravt import verl_adapter
from recipe.paravt.lifecycle.leftovers import shared_memory_prefix
from recipe.paravt.lifecycle.run_marker import run_id

ANSWER_SECONDS = 60.0
"""For the receiver of one bucket of weights to answer; chosen here. The receiver copies a bucket in milliseconds."""

UPDATE_SECONDS = 900.0
"""For a whole update of the weights; chosen here."""


class RunHttpServer(vLLMHttpServer):
    """verl's vLLM server with a socket name of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # verl names the weight socket after Ray's job id, which is 01000000 in every local cluster: two runs
        # on one machine would share it. The vLLM worker builds the name from this variable.
        os.environ["VERL_RAY_JOB_ID"] = run_id()


class RunReplica(vLLMReplica):
    """Starts ``RunHttpServer`` where verl would start its own."""

    server: type = RunHttpServer

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(self.server)


class RunServerAdapter(ServerAdapter):
    """The trainer's end of the weight transfer, on the socket that ``RunHttpServer`` names."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        handle: str = self.zmq_handle  # type: ignore[has-type]
        self.zmq_handle = handle.replace(ray.get_runtime_context().get_job_id(), run_id())

    async def update_weights(self, *args: Any, **kwargs: Any) -> None:
        try:
            await asyncio.wait_for(super().update_weights(*args, **kwargs), UPDATE_SECONDS)
        except Again:
            raise TimeoutError(
                f"vLLM's worker has not taken a bucket of weights for {ANSWER_SECONDS:g} s: it died or hangs"
            ) from None


class WeightSender(BucketedWeightSender):
    """verl's sender, which waits for ever for a receiver that died, with time limits."""

    def _init_socket(self) -> None:
        super()._init_socket()
        socket: Any = self.socket
        socket.setsockopt(constants.SNDTIMEO, round(ANSWER_SECONDS * 1000))
        socket.setsockopt(constants.RCVTIMEO, round(ANSWER_SECONDS * 1000))
        # Else closing it waits for ever for somebody to take what was sent.
        socket.setsockopt(constants.LINGER, 0)

    def _init_buffer(self) -> None:
        if not self.use_shm:
            super()._init_buffer()
            return
        # As verl does it, under a name of the run's, and with its memory at once: where /dev/shm is full, an
        # error here and not a SIGBUS when it is written to.
        name = f"{shared_memory_prefix(run_id())}weights-{os.getpid()}"
        shm = verl_adapter.create_shared_memory(self.bucket_size, name)
        self.shm = shm
        try:
            os.posix_fallocate(shm._fd, 0, self.bucket_size)
        except OSError as error:
            raise MemoryError(
                f"no room in /dev/shm for a bucket of weights of {self.bucket_size >> 20} MiB ({error.strerror}): make "
                "it larger, or lower actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
            ) from None
        socket: Any = self.socket
        socket.send_pyobj({"name": name, "size": self.bucket_size})
        socket.recv()
        self.buffer = torch.frombuffer(shm.buf, dtype=torch.uint8)


# This module is imported in runs of ours only.
verl_adapter.use_weight_sender(WeightSender)
