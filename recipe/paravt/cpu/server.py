"""vLLM's server and replica for CPU runs."""

from __future__ import annotations

from recipe.paravt.training.weight_transfer import RunHttpServer, RunReplica


class CpuHttpServer(RunHttpServer):
    """The server with the worker extension that the CPU needs."""

    def _get_worker_extension_cls(self) -> str:
        return "recipe.paravt.cpu.worker_extension.CpuWorkerExtension"


class CpuReplica(RunReplica):
    """Starts ``CpuHttpServer``."""

    server = CpuHttpServer
