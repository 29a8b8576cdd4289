"""PARA-GRPO's advantage (arXiv 2605.20342), as pure tensor functions.

The outcome part is GRPO's: the reward of a session against its group. The anchor part, with token credit, pays or
charges single structural tokens; the paper says only "at the structural-token positions most prone to collapse",
the formula for positions is this project's.
"""

from __future__ import annotations

from typing import Any

import torch

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it; verl's GRPO value."""


def normalize_within_groups(
    values: torch.Tensor, groups: torch.Tensor, *, by_std: bool = True, epsilon: float = EPSILON
) -> torch.Tensor:
    """Each value minus its group's mean, over the group's unbiased standard deviation.

    A group of one, or one whose values are all equal, gives 0.

    Args:
        values: Shape ``[S]`` or ``[S, K]``; with K columns each is normalised by itself.
        groups: group of each session, any integers. Shape ``[S]``.
        by_std: divide by the standard deviation (GRPO), or not (Dr. GRPO, arXiv 2503.20783).

    Returns:
        Shape of ``values``.
    """
    columns = (values if values.dim() == 2 else values.unsqueeze(-1)).double()
    names, index = torch.unique(groups, return_inverse=True)
    zeros = torch.zeros(len(names), columns.shape[1], dtype=columns.dtype)
    count = torch.bincount(index, minlength=len(names)).to(columns.dtype).unsqueeze(-1)
    mean = zeros.index_add(0, index, columns) / count
    centred = columns - mean[index]
    if by_std:
        variance = zeros.index_add(0, index, centred.square()) / (count - 1).clamp(min=1)
        # A spread at the level of rounding is none: dividing by it would turn noise into advantages of size 1.
        flat = variance.sqrt() <= 1e-9 * (1 + mean.abs())
        centred = torch.where(flat[index], 0.0, centred / (variance.sqrt()[index] + epsilon))
    return centred.to(values.dtype).reshape(values.shape)


def para_grpo_advantage(
    session_rewards: torch.Tensor,
    session_groups: torch.Tensor,
    row_sessions: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    anchor_flags: torch.Tensor | None = None,
    anchor_positions: torch.Tensor | None = None,
    anchor_weights: torch.Tensor | None = None,
    anchor_scale: float = 0.0,
    norm_by_std: bool = True,
    batch_norm: bool = False,
    epsilon: float = EPSILON,
) -> torch.Tensor:
    """Advantage of every token: ``A(i,t) = A_outcome(i) + anchor_scale * sum_k A_anchor(i,k) * [t in p(i,k)]``.

    A session counts once in its group, whatever its number of rows (sub-agents), and all its rows receive its
    outcome advantage. ``A_anchor(i,k)`` is the anchor flag against its group, times a signed weight that stands
    outside the normalisation because inside it would cancel.

    Args:
        session_rewards: reward of each session. Shape ``[S]``.
        session_groups: group (prompt) of each session, any integers. Shape ``[S]``.
        row_sessions: session of each row, ``0 <= row_sessions < S``; -1 for a padding row. Shape ``[R]``.
        response_mask: 1 for sampled tokens, 0 for forced, tool and padding tokens. Shape ``[R, T]``.
        anchor_flags: flag b of each session and anchor kind, 0 or 1. Shape ``[S, K]``.
        anchor_positions: whether a token is a position of a kind. Shape ``[R, T, K]``.
        anchor_weights: signed weight of each kind. Shape ``[K]``.
        anchor_scale: lambda_anchor * w_fmt.
        norm_by_std: divide the outcome part by the group's standard deviation; the anchor part always is.
        batch_norm: normalise the outcome part over all sessions of the batch afterwards.
        epsilon: see ``EPSILON``.

    Returns:
        Advantages, 0 wherever ``response_mask`` is 0, and everywhere without a session. Shape ``[R, T]``, float32.
    """
    if not len(session_rewards):
        return torch.zeros(response_mask.shape)
    outcome = normalize_within_groups(session_rewards.float(), session_groups, by_std=norm_by_std, epsilon=epsilon)
    if batch_norm:
        outcome = normalize_within_groups(outcome, torch.zeros_like(session_groups), epsilon=epsilon)

    is_real = row_sessions >= 0
    session = row_sessions.clamp(min=0)
    mask = response_mask.float() * is_real.unsqueeze(-1)
    advantages = outcome[session].unsqueeze(-1) * mask
    if anchor_flags is not None and anchor_scale:
        if anchor_positions is None or anchor_weights is None:
            raise ValueError("anchor_flags need anchor_positions and anchor_weights")
        credit = anchor_weights.float() * normalize_within_groups(anchor_flags.float(), session_groups, epsilon=epsilon)
        per_token = torch.einsum("rk,rtk->rt", credit[session], anchor_positions.float())
        advantages = advantages + anchor_scale * per_token * mask
    return advantages


def para_grpo_estimator(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Any,
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``para_grpo`` as a verl advantage estimator, for any veRL project: every row is a session of its own.

    An estimator sees neither anchors nor sessions, so the anchor term belongs into the reward (sequence credit,
    ``reward_fns`` with ``anchor_in_score=True``); token credit needs the V1 trainer ``para_grpo``.

    Args:
        token_level_rewards: Shape ``[R, T]``; a row's reward is the sum.
        response_mask: Shape ``[R, T]``.
        index: group name of each row. Length R.
        config: verl's ``algorithm`` node; ``norm_adv_by_std_in_grpo`` is read from it.

    Returns:
        Advantages and returns (the same). Shape ``[R, T]``.
    """
    names: dict[Any, int] = {}
    groups = torch.tensor([names.setdefault(name, len(names)) for name in index])
    advantages = para_grpo_advantage(
        token_level_rewards.sum(dim=-1),
        groups,
        torch.arange(len(groups)),
        response_mask,
        norm_by_std=True if config is None else bool(config.get("norm_adv_by_std_in_grpo", True)),
    )
    return advantages, advantages
