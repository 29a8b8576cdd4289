"""Rewards of ParaVT: pure functions, on the standard library alone.

``compute_score`` is veRL's custom reward function; the others are its parts.
"""

from reward_fns.choice import choice_letter, mcq_accuracy
from reward_fns.gold import check_gold
from reward_fns.score import (
    RewardBreakdown,
    RewardSettings,
    accuracy,
    acompute_score,
    compute_score,
    score_transcript,
)
from reward_fns.spans import parse_spans, temporal_iou
from reward_fns.structure import (
    AnchorEvent,
    FormatSettings,
    anchor_events,
    anchor_reward,
    format_base,
    format_reward,
    is_malformed,
    tool_reward,
)
from reward_fns.text import exact_match, token_f1
from reward_fns.transcript import Transcript, Turn, extract_answer

__all__ = [
    "AnchorEvent",
    "FormatSettings",
    "RewardBreakdown",
    "RewardSettings",
    "Transcript",
    "Turn",
    "accuracy",
    "acompute_score",
    "anchor_events",
    "anchor_reward",
    "check_gold",
    "choice_letter",
    "compute_score",
    "exact_match",
    "extract_answer",
    "format_base",
    "format_reward",
    "is_malformed",
    "mcq_accuracy",
    "parse_spans",
    "score_transcript",
    "temporal_iou",
    "token_f1",
    "tool_reward",
]
