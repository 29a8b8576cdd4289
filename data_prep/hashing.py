"""Keyed hashes: the same draw on every machine, whatever the process, the order of rows or PYTHONHASHSEED."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

HASH_BITS = 64


def keyed_hash(seed: int, *parts: str | int) -> int:
    """An integer in ``[0, 2**64)`` that depends on the seed and every part, and on nothing else."""
    # JSON keeps ("a", "bc") and ("ab", "c") apart.
    key = json.dumps([seed, *parts], separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=HASH_BITS // 8).digest(), "big")


def draw_frame_budget(seed: int, epoch: int, question_id: str, frame_budgets: Sequence[int]) -> int:
    """K ~ Uniform over ``frame_budgets``, drawn on its own for each question and epoch (arXiv 2605.20342)."""
    return frame_budgets[keyed_hash(seed, "budget", epoch, question_id) % len(frame_budgets)]


def order_key(seed: int, epoch: int, question_id: str) -> int:
    """Where a question stands in its epoch: rows are sorted by this."""
    return keyed_hash(seed, "order", epoch, question_id)
