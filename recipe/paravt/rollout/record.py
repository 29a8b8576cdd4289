"""One JSON-able record for each rollout: what ``rollouts/<step>.jsonl`` shows and the metrics are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.scoring import Score
from recipe.paravt.rollout.session import FinishedSession, RolloutFailed, SessionTurn

_OF_SAMPLE = (
    *("question_id", "data_source", "split", "epoch", "video"),
    *("question", "question_type", "ground_truth", "frame_budget"),
)


def _turn_record(turn: SessionTurn) -> dict[str, Any]:
    return {
        "text": turn.turn.text,
        "num_forced_tokens": turn.turn.forced,
        "num_sampled_tokens": turn.turn.sampled,
        "calls": [
            {
                "name": result.call.name,
                "arguments": result.call.arguments,
                "executed": result.executed,
                "error_kind": result.error_kind,
                "response": result.text,
                "elapsed_seconds": round(result.elapsed_seconds, 4),
            }
            for result in turn.results
        ],
        "errors": [error.reason for error in turn.parsed.errors],
    }


def _record(group: str, sample: Sample | None, turns: Sequence[SessionTurn], score: Score) -> dict[str, Any]:
    parts = score.parts
    return {
        "group": group,
        **{name: getattr(sample, name, None) for name in _OF_SAMPLE},
        "overview_frames": 0,
        "num_prompt_tokens": 0,
        "num_response_tokens": 0,
        "turns": [_turn_record(turn) for turn in turns],
        "end": None,
        "answer": score.answer,
        "reward": score.reward,
        "accuracy": parts["acc"],
        "format_reward": score.format_reward,
        "format_reward_reference": score.format_reward_reference,
        "format_base": parts["format_base"],
        "anchor": parts["anchor"],
        "tool_reward": parts["tool"],
        "num_calls": parts["num_calls"],
        "num_executed_calls": parts["num_executed_calls"],
        "malformed": parts["malformed"],
        "failure": None,
        "failure_reason": None,
        "tool_seconds": 0.0,
    }


def rollout_record(group: str, sample: Sample, finished: FinishedSession, score: Score) -> dict[str, Any]:
    """The record of a finished rollout.

    Args:
        group: verl's uid of the prompt.
    """
    return {
        **_record(group, sample, finished.turns, score),
        "overview_frames": finished.overview_frames,
        "num_prompt_tokens": len(finished.main.prompt_ids),
        "num_response_tokens": len(finished.main.response_ids),
        "end": finished.end.value,
        "tool_seconds": round(finished.tool_seconds, 4),
    }


def failed_record(group: str, sample: Sample | None, failed: RolloutFailed, score: Score) -> dict[str, Any]:
    """The record of a rollout that failed, with what is known of it; the fields are those of a finished one.

    Args:
        sample: none where the row is not even one.
        score: of nothing; see ``Scorer.score_nothing``.
    """
    return {
        **_record(group, sample, failed.turns, score),
        "overview_frames": failed.overview_frames,
        "failure": failed.kind,
        "failure_reason": str(failed),
    }
