"""One JSON-able record for each rollout: what ``rollouts/<step>.jsonl`` shows and the metrics are computed from."""

from __future__ import annotations

from typing import Any

from recipe.paravt.rollout.scoring import Score
from recipe.paravt.rollout.session import Session, SessionTurn


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


def rollout_record(session: Session, score: Score, group: str) -> dict[str, Any]:
    """The record of a finished session.

    Args:
        group: verl's uid of the prompt.
    """
    sample = session.sample
    parts = score.parts
    episode = session.episode
    return {
        "group": group,
        "question_id": sample.question_id,
        "data_source": sample.data_source,
        "split": sample.split,
        "epoch": sample.epoch,
        "video": sample.video,
        "question": sample.question,
        "question_type": sample.question_type,
        "ground_truth": sample.ground_truth,
        "frame_budget": sample.frame_budget,
        "overview_frames": session.overview_frames,
        "num_prompt_tokens": len(episode.prompt_ids) if episode else 0,
        "num_response_tokens": len(episode.response_ids) if episode else 0,
        "turns": [_turn_record(turn) for turn in session.turns],
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
        "failure": session.failure[0] if session.failure else None,
        "failure_reason": session.failure[1] if session.failure else None,
        "tool_seconds": round(session.tool_seconds, 4),
    }
