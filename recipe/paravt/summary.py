"""The short table at the end of a run, from its ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.paravt.run_files import MetricsFile

ROWS = {
    "reward": "critic/score/mean",
    "accuracy": "paravt/accuracy",
    "format reward f_τ": "paravt/format_reward",
    "tool calls per rollout κ": "paravt/tool_calls_per_rollout",
    "malformed rollouts": "paravt/malformed_rollouts",
}
"""Label → metric name."""


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [line[name] for line in lines if line.get(name) is not None]
    return f"{fmean(values):.3f}" if values else "-"


def summary_table(output_dir: str, window: int = 5) -> str:
    """Means over the first and the last steps, and where to look.

    Args:
        output_dir: a run's output folder.
        window: steps that a mean is taken over; fewer where the run has less than twice as many.
    """
    folder = Path(output_dir)
    lines = [line for line in MetricsFile.read(folder / "metrics.jsonl") if ROWS["reward"] in line]
    if not lines:
        return f"No training step has been logged in {folder / 'metrics.jsonl'}."
    width = max(1, min(window, len(lines) // 2))
    first, last = lines[:width], lines[-width:]
    label_width = max(map(len, ROWS))
    table = [
        f"{'':{label_width}}  first {width:>2}   last {width:>2}",
        *(f"{label:{label_width}}  {_mean(first, name):>8}  {_mean(last, name):>8}" for label, name in ROWS.items()),
    ]
    failed = sum(line.get("paravt/failed_sessions") or 0 for line in lines)
    checkpoints = sorted(
        (path for path in folder.glob("checkpoints/global_step_*")), key=lambda path: int(path.name.split("_")[-1])
    )
    table += [
        "",
        f"steps {lines[0]['step']} to {lines[-1]['step']}, {failed:g} failed sessions",
        f"metrics      {folder / 'metrics.jsonl'}",
        f"curves       tensorboard --logdir {folder / 'tensorboard'}",
        f"rollouts     {folder / 'rollouts'}",
    ]
    if checkpoints:
        table.append(f"weights      {checkpoints[-1] / 'actor' / 'huggingface'}")
    return "\n".join(table)
