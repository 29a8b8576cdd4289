"""One rollout of the main agent: overview → turns → crops in parallel → answer.

``Session.run`` returns what was said and what became of it, or raises. What a call does wrong is a text that the model
reads; what the video, the server or we do wrong is raised, and ``worker.py`` makes a counted rollout of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from paravt_tools import (
    CROP_VIDEO_SCHEMA,
    FrameBatch,
    ParsedCalls,
    ToolCall,
    ToolResult,
    VideoError,
    dispatch_calls,
    parse_tool_calls,
)
from paravt_tools.dispatch import ERROR_PREFIX
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.backend import Backend, SessionFailure
from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.decision import Counters, NextStep, TurnContent, next_step
from recipe.paravt.rollout.episode import AssistantTurn, Episode
from recipe.paravt.rollout.subagent import Subagent
from recipe.paravt.settings import ParaVTSettings
from reward_fns import extract_answer


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


@dataclass(frozen=True)
class FinishedSession:
    """A rollout that came to its end.

    Attributes:
        main: the main agent's conversation.
        turns: its turns, with what became of each.
        subagents: conversations of the sub-agents whose summaries came back, in the order of their calls; none where
            they were not asked for.
        end: why no further turn followed.
        overview_frames: frames that the main agent saw; K is what was drawn, this is what the video had.
        tool_seconds: wall-clock time between the calls and their summaries.
    """

    main: Episode
    turns: tuple[SessionTurn, ...]
    subagents: tuple[Episode, ...]
    end: NextStep
    overview_frames: int
    tool_seconds: float


@dataclass
class Session:
    """Makes one rollout.

    Args:
        forced_ids: tokens that every turn starts with.
        keep_subagents: return the sub-agents' conversations too, for a caller that trains them. Their frames stay in
            memory until then.

    Attributes:
        turns: the turns so far, for the record of a rollout that fails.
        overview_frames: as in ``FinishedSession``, for the same purpose.
    """

    sample: Sample
    settings: ParaVTSettings
    limits: TokenLimits
    backend: Backend
    forced_ids: Sequence[int]
    keep_subagents: bool = False
    turns: list[SessionTurn] = field(default_factory=list, init=False)
    overview_frames: int = field(default=0, init=False)
    _subagents: list[Episode] = field(default_factory=list, init=False)
    _tool_seconds: float = field(default=0.0, init=False)

    async def run(self) -> FinishedSession:
        """Runs the rollout to its end.

        Raises:
            SessionFailure: the video cannot be read, the prompt is too long, the server does not answer.
        """
        episode, subagent = await self._start()
        end = await self._converse(episode, subagent)
        return FinishedSession(
            main=episode,
            turns=tuple(self.turns),
            subagents=tuple(self._subagents),
            end=end,
            overview_frames=self.overview_frames,
            tool_seconds=self._tool_seconds,
        )

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
        subagent = Subagent(
            self.settings.subagent,
            self.backend,
            sample.video_path,
            sample.plain_question,
            frames.info.duration_seconds,
        )
        return episode, subagent

    async def _new_episode(self, frames: FrameBatch) -> Episode:
        messages = prompts.main_messages(
            self.sample.question, frames.timestamps_seconds.tolist(), self.settings.dispatch
        )
        return await self.backend.new_episode(messages, frames, tools=[CROP_VIDEO_SCHEMA])

    async def _converse(self, episode: Episode, subagent: Subagent) -> NextStep:
        while (room := self._room(episode)) >= 1:
            sampled = await self.backend.generate([*episode.ids, *self.forced_ids], episode.images, room)
            turn = episode.append_turn(self.forced_ids, sampled.token_ids, sampled.log_probs)
            parsed = parse_tool_calls(turn.text)
            content = TurnContent(len(parsed.calls), len(parsed.errors), bool(extract_answer(turn.text)))
            step = next_step(content, self.settings, Counters(len(self.turns) + 1, self._room(episode)))
            if step is not NextStep.CALL:
                self.turns.append(SessionTurn(turn, parsed, _not_executed(parsed, step)))
                return step
            results = await self._run_calls(parsed, subagent)
            self.turns.append(SessionTurn(turn, parsed, tuple(results)))
            if not await self._append_responses(episode, parsed, results):
                break
        return NextStep.OUT_OF_TOKENS

    def _room(self, episode: Episode) -> int:
        """How many tokens the next turn may sample."""
        return min(
            self.settings.max_new_tokens,
            self.limits.response - len(episode.response_ids) - len(self.forced_ids),
            self.limits.context - len(episode.ids) - len(self.forced_ids),
        )

    async def _run_calls(self, parsed: ParsedCalls, subagent: Subagent) -> list[ToolResult]:
        episodes: dict[int, Episode] = {}  # by the call's identity: two calls may share a span

        async def run_one(call: ToolCall) -> str:
            watched = await subagent.watch(call)
            if self.keep_subagents:
                episodes[id(call)] = watched.episode
            return watched.summary

        started = time.monotonic()
        results = await dispatch_calls(
            parsed.calls,
            run_one,
            max_parallel=self.settings.calls_per_turn,
            timeout_seconds=self.settings.limits.call_seconds,
        )
        self._tool_seconds += time.monotonic() - started
        self._subagents += [
            episodes[id(result.call)] for result in results if result.executed and id(result.call) in episodes
        ]
        return results

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


class RolloutFailed(Exception):
    """A rollout that did not come to its end, with what is known of it.

    Args:
        error: what happened. All but a ``SessionFailure`` is a fault of ours, of the kind ``internal``.
        session: as far as it came, where there was one.
    """

    def __init__(self, error: Exception, session: Session | None = None):
        super().__init__(str(error) if isinstance(error, SessionFailure) else f"{type(error).__name__}: {error}")
        self.kind = error.kind if isinstance(error, SessionFailure) else "internal"
        self.turns = tuple(session.turns) if session else ()
        self.overview_frames = session.overview_frames if session else 0


def _not_executed(parsed: ParsedCalls, end: NextStep) -> tuple[ToolResult, ...]:
    reason = f"{ERROR_PREFIX}not executed, the rollout ends here ({end.value})"
    return tuple(
        ToolResult(call=call, text=reason, executed=False, error_kind="over_limit", elapsed_seconds=0.0)
        for call in parsed.calls
    )
