"""The reward of a rollout, and its anchors as token positions; on the model's own turns, in the loop.

verl's reward workers would score a slice of padded ids that also holds tool responses, with the forced prefix
missing, so nothing is left for them to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.episode import AssistantTurn
from recipe.paravt.settings import ParaVTSettings
from reward_fns import (
    Transcript,
    Turn,
    anchor_events,
    compute_score,
    format_reward,
)
from reward_fns.structure import ANCHOR_KINDS


@dataclass(frozen=True)
class Anchors:
    """The anchors of one rollout.

    Attributes:
        flags: flag b of each kind in ``ANCHOR_KINDS``.
        positions: response positions p(k) of each kind.
    """

    flags: tuple[float, ...]
    positions: tuple[tuple[int, ...], ...]


NO_ANCHORS = Anchors((0.0,) * len(ANCHOR_KINDS), ((),) * len(ANCHOR_KINDS))
"""Of what has none: a rollout that failed, and a sub-agent."""


@dataclass(frozen=True)
class Score:
    """The reward of one rollout with its parts."""

    reward: float
    parts: dict[str, float]
    format_reward: float
    format_reward_reference: float
    answer: str | None
    anchors: Anchors


def anchor_weights(settings: ParaVTSettings) -> list[float]:
    """Signed weights in the order of ``ANCHOR_KINDS``."""
    reward = settings.reward
    return [reward.alpha, reward.beta, -reward.gamma]


class Scorer:
    """Scores rollouts with one run's settings."""

    def __init__(self, settings: ParaVTSettings):
        self._score_settings = settings.score_settings()
        self._format = settings.reward

    def score_nothing(self, sample: Sample | None) -> Score:
        """The score of a rollout that failed: the parts of any other, with nothing earned."""
        extra_info: dict[str, Any] = {"question_type": "oe", "transcript": Transcript(())}
        parts = compute_score("", "", "", extra_info, **self._score_settings)
        return Score(
            reward=0.0,
            parts={**parts, "score": 0.0, "is_grounding": float(sample is not None and sample.question_type == "tvg")},
            format_reward=0.0,
            format_reward_reference=0.0,
            answer=None,
            anchors=NO_ANCHORS,
        )

    def score(self, sample: Sample, turns: Sequence[AssistantTurn], executed: Sequence[Sequence[bool]]) -> Score:
        """Scores the assistant turns of a rollout.

        Args:
            turns: forced prefix included in their text.
            executed: for each turn, for each of its calls that parse, whether a summary came back.
        """
        transcript = Transcript(tuple(Turn(turn.text, tuple(done)) for turn, done in zip(turns, executed, strict=True)))
        extra_info: dict[str, Any] = {
            "question_type": sample.question_type,
            "question": sample.plain_question,
            "options": list(sample.options) if sample.options else None,
            "duration_seconds": sample.duration_seconds,
            "transcript": transcript,
        }
        parts = compute_score(sample.data_source, "", sample.ground_truth, extra_info, **self._score_settings)
        return Score(
            reward=parts["score"],
            parts={**parts, "is_grounding": float(sample.question_type == "tvg")},
            format_reward=parts["format"],
            format_reward_reference=format_reward(transcript),
            answer=transcript.answer,
            anchors=self._anchors(transcript, turns),
        )

    def _anchors(self, transcript: Transcript, turns: Sequence[AssistantTurn]) -> Anchors:
        events = anchor_events(transcript, self._format)
        flags, positions = [], []
        for kind in ANCHOR_KINDS:
            own = [event for event in events if event.kind == kind]
            # The flag is the rollout's: all events of a kind agree on it.
            flags.append(float(any(event.happened for event in own)))
            tokens = {position for event in own for position in turns[event.turn].response_positions(*event.span)}
            positions.append(tuple(sorted(tokens)))
        return Anchors(tuple(flags), tuple(positions))
