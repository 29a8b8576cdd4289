"""The ``paravt/*`` metrics of a step, from the records of its rollouts (see ``record.py`` for their fields)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

Record = Mapping[str, Any]


def _tool_gap(records: Sequence[Record], value: Callable[[Record], float]) -> float | None:
    """Mean of ``value`` over rollouts that called minus over those that did not, within groups, then over groups.

    None where no group has both kinds.
    """
    groups: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for record in records:
        groups[record["group"]][record["num_calls"] == 0].append(value(record))
    gaps = [fmean(called) - fmean(not_called) for called, not_called in groups.values() if called and not_called]
    return fmean(gaps) if gaps else None


def _mean(records: Sequence[Record], field: str) -> float:
    return fmean(record[field] for record in records)


def _per_budget(records: Sequence[Record]) -> dict[str, float]:
    by_budget: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_budget[record["frame_budget"]].append(record)
    metrics: dict[str, float | None] = {}
    for budget, members in sorted(by_budget.items()):
        prefix = f"paravt/K={budget}/"
        metrics[prefix + "accuracy"] = _mean(members, "accuracy")
        metrics[prefix + "tool_calls_per_rollout"] = _mean(members, "num_calls")
        metrics[prefix + "tool_gap"] = _tool_gap(members, lambda record: record["accuracy"])
    return _present(metrics)


def _present(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None}


def training_metrics(records: Sequence[Record], num_sessions: int | None = None) -> dict[str, float]:
    """Metrics of a training step.

    Args:
        records: one per rollout, padding rows left out.
        num_sessions: rollouts that there should be; those that are missing count as failures of the kind ``lost``.

    Returns:
        Metric name → value. A metric that the step cannot give (a tool gap without a group that has both kinds
        of rollouts, a share of tool turns without any, a mean of a step whose rollouts all failed) is left out.
    """
    lost = max(0, num_sessions - len(records)) if num_sessions is not None else 0
    failures = Counter(record["failure"] for record in records if record["failure"]) + Counter(lost=lost)
    metrics: dict[str, float | None] = {"paravt/failed_sessions": float(failures.total())}
    metrics |= {f"paravt/failures/{kind}": float(count) for kind, count in sorted(failures.items())}
    # What failed says nothing about the policy: as zeros it would hide in every mean.
    records = [record for record in records if not record["failure"]]
    if not records:
        return _present(metrics)
    tool_turns = [turn for record in records for turn in record["turns"] if turn["calls"]]
    metrics |= {
        "paravt/format_reward": _mean(records, "format_reward"),
        "paravt/format_reward_reference": _mean(records, "format_reward_reference"),
        "paravt/format_base": _mean(records, "format_base"),
        "paravt/tool_calls_per_rollout": _mean(records, "num_calls"),
        "paravt/executed_calls_per_rollout": _mean(records, "num_executed_calls"),
        "paravt/parallel_turns": fmean(len(turn["calls"]) >= 2 for turn in tool_turns) if tool_turns else None,
        "paravt/malformed_rollouts": _mean(records, "malformed"),
        "paravt/accuracy": _mean(records, "accuracy"),
        "paravt/tool_gap": _tool_gap(records, lambda record: record["accuracy"]),
        "paravt/tool_gap_reward": _tool_gap(records, lambda record: record["reward"]),
        "paravt/overview_frames": _mean(records, "overview_frames"),
    }
    errors = Counter(call["error_kind"] for turn in tool_turns for call in turn["calls"] if call["error_kind"])
    errors["parse"] = sum(len(turn["errors"]) for record in records for turn in record["turns"])
    metrics |= {f"paravt/call_errors/{kind}": float(count) for kind, count in sorted(errors.items())}
    return _present(metrics) | _per_budget(records)


def validation_metrics(data_sources: Iterable[str], rewards: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """``paravt/val/<data_source>/…`` from the reward parts of a validation pass.

    Args:
        data_sources: of each rollout.
        rewards: columns, one value per rollout; ``acc``, ``num_calls`` and ``is_grounding`` are read.

    Returns:
        ``accuracy`` and ``tool_calls_per_rollout``; for sources with temporal grounding also ``miou`` and
        ``recall@0.3``, ``@0.5``, ``@0.7`` (shares of grounding rollouts whose IoU reaches the threshold).
    """
    by_source: dict[str, list[int]] = defaultdict(list)
    for position, source in enumerate(data_sources):
        by_source[source].append(position)
    metrics: dict[str, float] = {}
    for source, positions in sorted(by_source.items()):
        prefix = f"paravt/val/{source}/"
        metrics[prefix + "accuracy"] = fmean(rewards["acc"][position] for position in positions)
        metrics[prefix + "tool_calls_per_rollout"] = fmean(rewards["num_calls"][position] for position in positions)
        overlaps = [rewards["acc"][position] for position in positions if rewards["is_grounding"][position]]
        if overlaps:
            metrics[prefix + "miou"] = fmean(overlaps)
            for threshold in (0.3, 0.5, 0.7):
                metrics[prefix + f"recall@{threshold}"] = fmean(overlap >= threshold for overlap in overlaps)
    return metrics
