"""Puts the CPU backend into verl's registries, in processes of a CPU run of ours."""

from __future__ import annotations

import functools

import verl.utils.distributed


def register_cpu_backend() -> None:
    """Selects our engine and process-group backend; the function has no registry, verl offers no other way."""
    initialize = verl.utils.distributed.initialize_global_process_group_ray
    if not getattr(initialize, "paravt_gloo", False):

        @functools.wraps(initialize)
        def initialize_with_gloo(timeout_second=None, backend=None):
            # verl would ask for "cpu:gloo,cpu:gloo", which torch refuses: one device type, one backend.
            return initialize(timeout_second, backend or "cpu:gloo")

        initialize_with_gloo.paravt_gloo = True  # type: ignore[attr-defined]
        verl.utils.distributed.initialize_global_process_group_ray = initialize_with_gloo

    from recipe.paravt.cpu import engine  # noqa: F401  (registers itself; its imports bind the function above)
