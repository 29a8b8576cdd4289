"""What verl calls on ``torch.<device>``, for the CPU; ``CpuPlatform.device_module`` is this module.

Memory figures are those of the process, in bytes. ``is_available`` is false: verl asks it before it manages an
accelerator's memory, and there is none.
"""

from __future__ import annotations

import platform
import resource
from typing import Any

import psutil
import torch
from torch.cpu import current_stream, stream

__all__ = [
    "current_stream",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_rng_state",
    "ipc_collect",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "set_device",
    "set_rng_state",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    return False


def device_count() -> int:
    return 1


def set_device(device: Any) -> None:
    pass


def synchronize(device: Any = None) -> None:
    pass


def empty_cache() -> None:
    pass


def ipc_collect() -> None:
    pass


def get_device_name(device: Any = None) -> str:
    return platform.processor() or platform.machine()


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)


def memory_allocated(device: Any = None) -> int:
    return psutil.Process().memory_info().rss


def max_memory_allocated(device: Any = None) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def mem_get_info(device: Any = None) -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated
