"""From verl's rows to sessions and groups."""

import pytest
import torch

from recipe.paravt.settings import AdvantageSettings, ParaVTSettings
from recipe.paravt.training.trainer import batch_advantages, check_failures

PLAIN = ParaVTSettings(advantage=AdvantageSettings(batch_norm=False))


def fields(flags=(0.0, 0.0, 0.0), positions=((), (), ()), failure=None):
    return {
        "paravt_record": {"failure": failure},
        "paravt_anchor_flags": flags,
        "paravt_anchor_positions": positions,
    }


def advantages(keys, rewards, extra_fields, padding=(), settings=PLAIN):
    return batch_advantages(
        keys=keys,
        is_padding=[key in padding for key in keys],
        row_rewards=torch.tensor(rewards),
        response_mask=torch.ones(len(keys), 2),
        extra_fields=extra_fields,
        settings=settings,
        norm_by_std=False,
    )


def test_a_session_counts_once_and_all_its_rows_get_its_advantage():
    keys = ["p_0_0", "p_0_1", "p_1_0", "q_0_0", "q_1_0"]
    result = advantages(keys, [1.0, 1.0, 0.0, 3.0, 3.0], [fields()] * 5)
    # Mean of the group p is 0.5 with two sessions; with three rows it would be 2/3.
    assert result[:, 0].tolist() == pytest.approx([0.5, 0.5, -0.5, 0.0, 0.0])


def test_padding_rows_get_nothing_and_count_for_nothing():
    result = advantages(["p_0_0", "p_1_0", "p_1_1"], [1.0, 0.0, 9.0], [fields()] * 3, padding={"p_1_1"})
    assert result[:, 0].tolist() == pytest.approx([0.5, -0.5, 0.0])


def test_a_failed_session_teaches_nothing_and_does_not_shift_its_group():
    extra = [fields(), fields(), fields(failure="generation")]
    result = advantages(["p_0_0", "p_1_0", "p_2_0"], [1.0, 2.0, 0.0], extra)
    assert result[:, 0].tolist() == pytest.approx([-0.5, 0.5, 0.0])


def test_anchors_reach_their_tokens_only():
    extra = [fields((1.0, 0.0, 0.0), ((1,), (), ())), fields((0.0, 0.0, 0.0), ((0,), (), ()))]
    result = advantages(["p_0_0", "p_1_0"], [1.0, 1.0], extra)
    # (b - mean) / std = ±0.5 / 0.7071, times lambda 0.5, w_fmt 1, alpha 0.4.
    credit = 0.5 / 0.70710678 * 0.5 * 0.4
    assert result.tolist() == [pytest.approx([0.0, credit], abs=1e-5), pytest.approx([-credit, 0.0], abs=1e-5)]
    sequence = ParaVTSettings(advantage=AdvantageSettings(anchor_credit="sequence", batch_norm=False))
    assert advantages(["p_0_0", "p_1_0"], [1.0, 1.0], extra, settings=sequence).abs().sum() == 0


def test_a_step_that_lost_too_many_rollouts_ends_the_run():
    good, bad = {"failure": None}, {"failure": "generation", "failure_reason": "EngineDeadError"}
    check_failures([good] * 4, 4, 0.5)
    check_failures([good, good, bad], 4, 0.5)
    with pytest.raises(RuntimeError, match=r"of 4 rollouts .* 1 were lost and 2 failed .*generation.*EngineDeadError"):
        check_failures([good, bad, bad], 4, 0.5)
    with pytest.raises(RuntimeError, match="2 were lost and 0 failed"):
        check_failures([good, good], 4, 0.25)


def test_where_all_failed_nothing_is_taught():
    extra = [fields(failure="video"), {**fields(), "paravt_record": None}, fields(failure="generation")]
    result = advantages(["p_0_1", "p_0_0", "p_1_0"], [1.0, 1.0, 0.0], extra, settings=ParaVTSettings())
    assert result.shape == (3, 2) and result.abs().sum() == 0


def test_a_sub_agents_row_fails_with_its_session():
    extra = [{**fields(), "paravt_record": None}, fields(failure="internal"), fields(), fields()]
    result = advantages(["p_0_0", "p_0_1", "p_1_0", "p_2_0"], [9.0, 9.0, 1.0, 2.0], extra)
    assert result[:, 0].tolist() == pytest.approx([0.0, 0.0, -0.5, 0.5])
