"""PARA-GRPO's advantage against hand-worked numbers and against verl's GRPO."""

import math

import numpy as np
import pytest
import torch

from recipe.paravt.training.advantage import normalize_within_groups, para_grpo_advantage, para_grpo_estimator


def test_two_groups_by_hand():
    # Group 0 has rewards 1 and 3: mean 2, unbiased std sqrt(2). Group 1 has 5 and 5: no spread, no advantage.
    values = torch.tensor([1.0, 3.0, 5.0, 5.0])
    result = normalize_within_groups(values, torch.tensor([0, 0, 1, 1]))
    assert result.tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2), 0.0, 0.0], abs=1e-5)
    without_std = normalize_within_groups(values, torch.tensor([0, 0, 1, 1]), by_std=False)
    assert without_std.tolist() == [-1.0, 1.0, 0.0, 0.0]


def test_a_group_of_one_has_no_advantage():
    # verl's GRPO would train on the raw reward here.
    assert normalize_within_groups(torch.tensor([7.0]), torch.tensor([3])).tolist() == [0.0]


def test_equal_rewards_that_differ_by_rounding_are_equal():
    values = torch.tensor([0.1 + 0.2, 0.3], dtype=torch.float64)
    assert values[0] != values[1]
    assert normalize_within_groups(values, torch.tensor([0, 0])).tolist() == [0.0, 0.0]


def test_mask_is_respected():
    mask = torch.tensor([[0, 1, 1], [1, 0, 1]])
    result = para_grpo_advantage(torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), torch.tensor([0, 1]), mask)
    a = 1 / math.sqrt(2)
    torch.testing.assert_close(result, torch.tensor([[0.0, -a, -a], [a, 0.0, a]]), atol=1e-5, rtol=0)


def test_token_credit_by_hand():
    # Two rollouts, one kind of weight 0.4, scale 0.5. Flags 1 and 0: mean 0.5, std sqrt(0.5), so the normalised
    # flags are +-0.7071 and the credit is +-0.4 * 0.7071 * 0.5 = +-0.14142, on the positions only.
    positions = torch.zeros(2, 3, 1, dtype=torch.bool)
    positions[0, 1, 0] = positions[1, 2, 0] = True
    result = para_grpo_advantage(
        torch.tensor([1.0, 1.0]),
        torch.tensor([0, 0]),
        torch.tensor([0, 1]),
        torch.ones(2, 3),
        anchor_flags=torch.tensor([[1.0], [0.0]]),
        anchor_positions=positions,
        anchor_weights=torch.tensor([0.4]),
        anchor_scale=0.5,
    )
    expected = torch.tensor([[0.0, 0.1414214, 0.0], [0.0, 0.0, -0.1414214]])
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)


def test_weights_stand_outside_the_normalisation():
    # The same flags with ten times the weight: ten times the credit (inside, the weight would cancel).
    def credit(weight):
        return para_grpo_advantage(
            torch.zeros(2),
            torch.tensor([0, 0]),
            torch.tensor([0, 1]),
            torch.ones(2, 1),
            anchor_flags=torch.tensor([[1.0], [0.0]]),
            anchor_positions=torch.ones(2, 1, 1, dtype=torch.bool),
            anchor_weights=torch.tensor([weight]),
            anchor_scale=1.0,
        )

    torch.testing.assert_close(credit(1.0), 10 * credit(0.1))
    assert credit(1.0)[0, 0] > 0 > credit(1.0)[1, 0]


def test_anchor_never_lands_on_masked_tokens():
    result = para_grpo_advantage(
        torch.zeros(2),
        torch.tensor([0, 0]),
        torch.tensor([0, 1]),
        torch.tensor([[0, 1], [0, 1]]),
        anchor_flags=torch.tensor([[1.0], [0.0]]),
        anchor_positions=torch.ones(2, 2, 1, dtype=torch.bool),
        anchor_weights=torch.tensor([1.0]),
        anchor_scale=1.0,
    )
    assert result[:, 0].tolist() == [0.0, 0.0]
    assert result[0, 1] > 0


def test_a_session_counts_once_whatever_its_number_of_rows():
    # Session 0 has three rows; were they group members, the mean would be 1/4 and not 1/2.
    result = para_grpo_advantage(
        torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), torch.tensor([0, 0, 0, 1]), torch.ones(4, 1)
    )
    a = 1 / math.sqrt(2)
    assert result.squeeze(-1).tolist() == pytest.approx([-a, -a, -a, a], abs=1e-5)


def test_padding_rows_are_no_sessions():
    result = para_grpo_advantage(
        torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), torch.tensor([0, 1, -1]), torch.ones(3, 1)
    )
    assert result[2].tolist() == [0.0]
    assert result[0, 0] < 0 < result[1, 0]


def test_batch_norm_acts_on_sessions_and_on_the_outcome_alone():
    rewards = torch.tensor([0.0, 1.0, 0.0, 4.0, 2.0, 2.0])
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    arguments = {
        "anchor_flags": torch.tensor([[1.0], [0.0]] * 3),
        "anchor_positions": torch.ones(6, 1, 1, dtype=torch.bool),
        "anchor_weights": torch.tensor([0.4]),
        "anchor_scale": 0.5,
    }
    rows, mask = torch.arange(6), torch.ones(6, 1)
    outcome = para_grpo_advantage(rewards, groups, rows, mask, batch_norm=True)
    assert outcome.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert outcome.std().item() == pytest.approx(1.0, abs=1e-4)
    with_anchor = para_grpo_advantage(rewards, groups, rows, mask, batch_norm=True, **arguments)
    anchor_alone = para_grpo_advantage(torch.zeros(6), groups, rows, mask, **arguments)
    torch.testing.assert_close(with_anchor, outcome + anchor_alone)


@pytest.mark.parametrize("norm_by_std", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_equals_verls_grpo_without_anchor_and_batch_norm(seed, norm_by_std):
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    generator = torch.Generator().manual_seed(seed)
    size, length, groups = 24, 7, 6
    index = np.array([f"g{i % groups}" for i in range(size)], dtype=object)
    rewards = torch.zeros(size, length)
    rewards[:, -1] = torch.rand(size, generator=generator) * 3
    mask = (torch.rand(size, length, generator=generator) > 0.3).float()
    expected, _ = compute_grpo_outcome_advantage(rewards.clone(), mask, index, norm_adv_by_std_in_grpo=norm_by_std)
    ours, _ = para_grpo_estimator(rewards, mask, index, config={"norm_adv_by_std_in_grpo": norm_by_std})
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-6)


def test_flags_without_positions_are_a_mistake():
    with pytest.raises(ValueError, match="anchor_positions"):
        para_grpo_advantage(
            torch.zeros(2),
            torch.tensor([0, 0]),
            torch.arange(2),
            torch.ones(2, 1),
            anchor_flags=torch.ones(2, 1),
            anchor_scale=1.0,
        )
