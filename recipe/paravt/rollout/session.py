"""One rollout of the main agent: overview → turns → crops in parallel → answer.

Nothing that a tool, a parse, a sub-agent or the server does leaves ``Session.run`` as an exception: a session that
raised would shrink its group without a word. What goes wrong ends the rollout with what there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from data_prep.schema import VIDEO_PLACEHOLDER
from paravt_tools import (
    CROP_VIDEO_SCHEMA,
    FrameBatch,
    ParsedCalls,
    ToolResult,
    VideoError,
    dispatch_calls,
    parse_tool_calls,
)
from paravt_tools.dispatch import ERROR_PREFIX
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.backend import Backend, SessionFailure
from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.episode import AssistantTurn, Episode
from recipe.paravt.rollout.subagent import Subagent
from recipe.paravt.settings import ParaVTSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenLimits:
    """Lengths that verl's batches and the server allow, in tokens."""

    prompt: int
    response: int
    context: int


@dataclass(frozen=True)
class SessionTurn:
    """One assistant turn with what became of its calls.

    Attributes:
        results: one for each call that parses, in order.
    """

    turn: AssistantTurn
    parsed: ParsedCalls
    results: tuple[ToolResult, ...]

    @property
    def executed(self) -> tuple[bool, ...]:
        return tuple(result.executed for result in self.results)


@dataclass
class Session:
    """The state of one rollout; ``run`` fills it.

    Attributes:
        failure: kind and reason of what ended the rollout early, if anything did.
        overview_frames: frames that the main agent saw; K is what was drawn, this is what the video had.
        tool_seconds: wall-clock time between the calls and their summaries.
    """

    sample: Sample
    settings: ParaVTSettings
    limits: TokenLimits
    backend: Backend
    forced_ids: Sequence[int]
    episode: Episode | None = None
    turns: list[SessionTurn] = field(default_factory=list)
    failure: tuple[str, str] | None = None
    overview_frames: int = 0
    tool_seconds: float = 0.0

    async def run(self) -> None:
        """Runs the rollout to its end.

        Raises only where not even a blank prompt can be made: then the processor or the tokenizer is broken, which is
        a fault of the run, not of a rollout.
        """
        try:
            episode, subagent = await self._start()
            await self._converse(episode, subagent)
        except SessionFailure as failure:
            self.failure = (failure.kind, str(failure))
        except Exception as error:
            # A fault of ours. It must not take the other rollouts of the group down, and it must be seen.
            logger.exception("a session failed: %s", self.sample.question_id)
            self.failure = ("internal", f"{type(error).__name__}: {error}")
        if self.episode is None:
            await self._start_blank()

    async def _start(self) -> tuple[Episode, Subagent]:
        sample = self.sample
        try:
            frames = await self.backend.read_frames(
                sample.video_path,
                sample.frame_budget,
                0.0,
                None,
                min_pixels=sample.min_pixels,
                max_pixels=sample.max_pixels,
            )
        except VideoError as error:
            raise SessionFailure("video", str(error)) from error
        self.overview_frames = len(frames.timestamps_seconds)
        assert frames.info is not None  # frames of a file have it
        episode = await self._new_episode(frames)
        if len(episode.prompt_ids) > self.limits.prompt:
            raise SessionFailure(
                "prompt_too_long",
                f"the prompt has {len(episode.prompt_ids)} tokens, data.max_prompt_length is {self.limits.prompt}; "
                "lower the frame budget or the pixel limits, or raise the limit",
            )
        self.episode = episode
        subagent = Subagent(
            self.settings.subagent,
            self.backend,
            sample.video_path,
            sample.plain_question,
            frames.info.duration_seconds,
        )
        return episode, subagent

    async def _start_blank(self) -> None:
        """A shortest prompt with one black frame, for a rollout that could not begin.

        With a frame, so that all rows of a batch have the same fields.
        """
        blank = FrameBatch(images=np.zeros((1, 32, 32, 3), np.uint8), timestamps_seconds=np.zeros(1), info=None)
        messages = [prompts.user_message(VIDEO_PLACEHOLDER, [0.0])]
        self.episode = await self.backend.new_episode(messages, blank, tools=None)

    async def _new_episode(self, frames: FrameBatch) -> Episode:
        messages = prompts.main_messages(
            self.sample.question, frames.timestamps_seconds.tolist(), self.settings.dispatch
        )
        return await self.backend.new_episode(messages, frames, tools=[CROP_VIDEO_SCHEMA])

    async def _converse(self, episode: Episode, subagent: Subagent) -> None:
        for number in range(1, self.settings.max_turns + 1):
            turn = await self._generate_turn(episode)
            if turn is None:
                return
            parsed = parse_tool_calls(turn.text)
            wants_more = bool(parsed.calls or (parsed.errors and "<answer>" not in turn.text))
            if not wants_more or number == self.settings.max_turns:
                self.turns.append(SessionTurn(turn, parsed, self._not_executed(parsed)))
                return
            started = time.monotonic()
            results = await dispatch_calls(
                parsed.calls,
                subagent.run,
                max_parallel=self.settings.calls_per_turn,
                timeout_seconds=self.settings.limits.call_seconds,
            )
            self.tool_seconds += time.monotonic() - started
            self.turns.append(SessionTurn(turn, parsed, tuple(results)))
            if not await self._append_responses(episode, parsed, results):
                return

    async def _generate_turn(self, episode: Episode) -> AssistantTurn | None:
        """The next turn, or none where no token is left for it."""
        num_forced = len(self.forced_ids)
        room = min(
            self.settings.max_new_tokens,
            self.limits.response - len(episode.response_ids) - num_forced,
            self.limits.context - len(episode.ids) - num_forced,
        )
        if room < 1:
            return None
        sampled = await self.backend.generate([*episode.ids, *self.forced_ids], episode.images, room)
        return episode.append_turn(self.forced_ids, sampled.token_ids, sampled.log_probs)

    async def _append_responses(self, episode: Episode, parsed: ParsedCalls, results: Sequence[ToolResult]) -> bool:
        """Adds one tool message for each call and each bad call, in their order; false where they do not fit."""
        texts = [(result.call.span, result.text) for result in results]
        texts += [(error.span, ERROR_PREFIX + error.reason) for error in parsed.errors]
        messages = [prompts.tool_message(text) for _, text in sorted(texts, key=lambda item: item[0])]
        ids = await asyncio.to_thread(episode.context_ids, messages)
        room = min(
            self.limits.response - len(episode.response_ids),
            self.limits.context - len(episode.ids),
        )
        if len(ids) + len(self.forced_ids) >= room:
            return False
        episode.append_context(messages, ids)
        return True

    def _not_executed(self, parsed: ParsedCalls) -> tuple[ToolResult, ...]:
        reason = f"{ERROR_PREFIX}not executed, {self.settings.max_turns} turns is the limit"
        return tuple(
            ToolResult(call=call, text=reason, executed=False, error_kind="over_limit", elapsed_seconds=0.0)
            for call in parsed.calls
        )


def count_image_runs(ids: Sequence[int], image_token_id: int) -> int:
    """How many images the placeholder tokens of ``ids`` stand for: runs of ``image_token_id``."""
    is_image: Any = np.asarray(ids) == image_token_id
    return int(is_image[:1].sum() + (is_image[1:] & ~is_image[:-1]).sum())
