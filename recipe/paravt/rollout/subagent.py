"""One crop call: a window's frames, a fresh conversation with the same weights, a summary."""

from __future__ import annotations

from dataclasses import dataclass

from paravt_tools import CropWindow, ToolCall
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.backend import Backend
from recipe.paravt.rollout.episode import Episode
from recipe.paravt.settings import SubagentSettings


class EmptySummary(Exception):
    """The sub-agent's turn holds no text."""

    kind = "empty_summary"


@dataclass(frozen=True)
class Watched:
    """What a sub-agent said of its window, and the conversation in which it did."""

    summary: str
    episode: Episode


class Subagent:
    """Answers the crop calls of one rollout.

    Args:
        settings: what a sub-agent sees and says.
        video_path: the row's own video, whatever a call says.
        question: shown to it where the settings say so.
        duration_seconds: length of the video; windows are clamped to it.
    """

    def __init__(
        self,
        settings: SubagentSettings,
        backend: Backend,
        video_path: str,
        question: str,
        duration_seconds: float,
    ):
        self._settings = settings
        self._backend = backend
        self._video_path = video_path
        self._question = question if settings.see_question else None
        self._duration_seconds = duration_seconds

    async def watch(self, call: ToolCall) -> Watched:
        """Watches the window that ``call`` asks for.

        Raises:
            ToolArgumentError: the arguments name no window of this video.
            VideoError: the window cannot be read.
            EmptySummary: the sub-agent said nothing.
        """
        window = CropWindow.from_arguments(call.arguments, self._duration_seconds)
        frames = await self._backend.read_frames(
            self._video_path,
            window.num_frames(self._settings.fps, self._settings.max_frames),
            window.start_seconds,
            window.end_seconds,
            min_pixels=self._settings.min_pixels,
            max_pixels=self._settings.max_pixels,
        )
        messages = prompts.subagent_messages(self._question, frames.timestamps_seconds.tolist())
        episode = await self._backend.new_episode(messages, frames, tools=None)
        sampled = await self._backend.generate(episode.ids, episode.images, self._settings.max_new_tokens)
        turn = episode.append_turn((), sampled.token_ids, sampled.log_probs)
        summary = turn.text.strip()
        if not summary:
            raise EmptySummary("the sub-agent returned an empty summary")
        return Watched(summary, episode)
