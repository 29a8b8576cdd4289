"""The paradox metrics, by hand."""

import pytest

from recipe.paravt.training.metrics import training_metrics, validation_metrics


def record(group, *, accuracy=0.0, num_calls=0, budget=4, failure=None, turns=(), reward=0.0):
    return {
        "group": group,
        "accuracy": accuracy,
        "reward": reward,
        "num_calls": float(num_calls),
        "num_executed_calls": float(num_calls),
        "frame_budget": budget,
        "overview_frames": budget,
        "format_reward": 0.5,
        "format_reward_reference": 0.25,
        "format_base": 0.75,
        "malformed": 0.0,
        "failure": failure,
        "turns": [{"calls": [{"error_kind": "video"}] * calls, "errors": ["no JSON"]} for calls in turns],
    }


def test_tool_gap_is_within_groups_and_averaged_over_those_with_both():
    metrics = training_metrics(
        [
            record("a", accuracy=1.0, num_calls=1),  # called 1.0, not called 0.5: gap 0.5
            record("a", accuracy=1.0),
            record("a", accuracy=0.0),
            record("b", accuracy=0.0, num_calls=2),  # called 0.0, not called 1.0: gap -1.0
            record("b", accuracy=1.0),
            record("c", accuracy=1.0, num_calls=1),  # nobody went without: no gap
        ]
    )
    assert metrics["paravt/tool_gap"] == pytest.approx((0.5 - 1.0) / 2)
    assert metrics["paravt/tool_calls_per_rollout"] == pytest.approx(4 / 6)
    assert metrics["paravt/accuracy"] == pytest.approx(4 / 6)


def test_what_a_step_cannot_give_is_left_out():
    metrics = training_metrics([record("a", num_calls=1), record("a", num_calls=1)])
    assert "paravt/tool_gap" not in metrics
    assert "paravt/K=4/tool_gap" not in metrics
    assert "paravt/parallel_turns" not in metrics


def test_parallel_turns_is_the_share_of_tool_turns_with_two_calls_or_more():
    metrics = training_metrics([record("a", turns=(3, 0)), record("a", turns=(1, 2, 0))])
    assert metrics["paravt/parallel_turns"] == pytest.approx(2 / 3)


def test_per_budget():
    metrics = training_metrics(
        [record("a", accuracy=1.0, budget=4), record("a", accuracy=0.0, budget=4), record("b", budget=64, num_calls=2)]
    )
    assert metrics["paravt/K=4/accuracy"] == 0.5
    assert metrics["paravt/K=64/tool_calls_per_rollout"] == 2.0
    assert metrics["paravt/overview_frames"] == pytest.approx((4 + 4 + 64) / 3)


def test_failures_are_counted_by_kind():
    metrics = training_metrics([record("a", failure="video"), record("a", failure="video"), record("b", failure="x")])
    assert metrics["paravt/failed_sessions"] == 3
    assert metrics["paravt/failures/video"] == 2
    assert metrics["paravt/failures/x"] == 1


def test_what_failed_is_in_no_mean_and_no_gap():
    finished = [record("a", accuracy=1.0, num_calls=2, turns=(2, 0)), record("a", accuracy=0.5)]
    blank = [record("a", budget=64, failure="video"), record("b", failure="internal", turns=(1,))]
    metrics = training_metrics(finished + blank, 5)
    counted = {name: value for name, value in metrics.items() if "fail" in name}
    assert counted == {
        "paravt/failed_sessions": 3.0,
        "paravt/failures/video": 1.0,
        "paravt/failures/internal": 1.0,
        "paravt/failures/lost": 1.0,
    }
    assert metrics == training_metrics(finished) | counted


def test_validation_by_source_with_grounding():
    metrics = validation_metrics(
        ["s", "s", "s", "t"],
        {"acc": [0.6, 0.2, 1.0, 1.0], "num_calls": [1, 0, 2, 0], "is_grounding": [1.0, 1.0, 0.0, 0.0]},
    )
    assert metrics["paravt/val/s/accuracy"] == pytest.approx(0.6)
    assert metrics["paravt/val/s/miou"] == pytest.approx(0.4)
    assert metrics["paravt/val/s/recall@0.3"] == 0.5
    assert metrics["paravt/val/s/recall@0.7"] == 0.0
    assert metrics["paravt/val/s/tool_calls_per_rollout"] == 1.0
    assert "paravt/val/t/miou" not in metrics


def test_missing_rollouts_count_as_lost():
    metrics = training_metrics([], 4)
    assert metrics == {"paravt/failed_sessions": 4.0, "paravt/failures/lost": 4.0}


def test_what_calls_did_wrong_is_counted_by_kind():
    metrics = training_metrics([record("a", turns=(2, 1)), record("a", turns=(0,))])
    assert metrics["paravt/call_errors/video"] == 3.0 and metrics["paravt/call_errors/parse"] == 3.0
