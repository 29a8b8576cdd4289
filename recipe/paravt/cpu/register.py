"""Puts the CPU backend into verl's registries, in processes of a CPU run of ours."""

from __future__ import annotations

from recipe.paravt import verl_adapter


def register_cpu_backend() -> None:
    """Selects our engine and process-group backend."""
    # First: what is imported afterwards binds the function that this replaces. verl would ask for "cpu:gloo,cpu:gloo",
    # which torch refuses: one device type, one backend.
    verl_adapter.use_process_group_backend("cpu:gloo")

    from recipe.paravt.cpu.engine import CpuFSDPEngine

    verl_adapter.register_engine(CpuFSDPEngine, device="cpu")
