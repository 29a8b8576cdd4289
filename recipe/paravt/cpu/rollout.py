"""verl's vLLM replica and server adapter for CPU runs, registered under the name ``vllm`` itself.

Another name trains too, but verl compares with ``"vllm"`` in places (request priority, configuration checks).
"""

from __future__ import annotations

import os

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

from recipe.paravt.run_marker import run_id


class CpuHttpServer(vLLMHttpServer):
    """verl's vLLM server with our worker extension and a socket name of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # verl names the weight socket after Ray's job id, which is 01000000 in every local cluster: two runs
        # on one machine would share it. The vLLM worker builds the name from this variable.
        os.environ["VERL_RAY_JOB_ID"] = run_id()

    def _get_worker_extension_cls(self) -> str:
        return "recipe.paravt.cpu.worker_extension.CpuWorkerExtension"


class CpuReplica(vLLMReplica):
    """Starts ``CpuHttpServer`` where verl would start its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(CpuHttpServer)


class CpuServerAdapter(ServerAdapter):
    """The trainer's end of the weight transfer, on the socket that ``CpuHttpServer`` names."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        handle: str = self.zmq_handle  # type: ignore[has-type]
        self.zmq_handle = handle.replace(ray.get_runtime_context().get_job_id(), run_id())
