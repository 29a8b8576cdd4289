"""What a session needs from the process it runs in; ``ParaVTAgentLoop`` is the one that trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from paravt_tools import FrameBatch
from recipe.paravt.rollout.episode import Episode


class SessionFailure(Exception):
    """Ends a rollout that is not the policy's fault; ``kind`` is what ``paravt/failures/<kind>`` counts."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class Sampled:
    """What the server returned for one request.

    Attributes:
        token_ids: sampled ids, the end-of-turn token included.
        log_probs: one per id.
    """

    token_ids: list[int]
    log_probs: list[float]


class Backend(Protocol):
    """Frames, conversations and the server."""

    async def read_frames(
        self,
        video_path: str,
        num_frames: int,
        start_seconds: float,
        end_seconds: float | None,
        *,
        min_pixels: int,
        max_pixels: int,
    ) -> FrameBatch:
        """Frames of a window; raises ``VideoError``."""

    async def new_episode(
        self, messages: list[dict[str, Any]], frames: FrameBatch, *, tools: list[dict[str, Any]] | None
    ) -> Episode:
        """A conversation whose image items are ``frames``."""

    async def generate(self, ids: list[int], images: list[Any], max_new_tokens: int) -> Sampled:
        """One answer of the server; raises ``SessionFailure``."""
