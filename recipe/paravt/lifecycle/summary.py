"""What a run says of its steps, and at its end: the short table, or how far it came and how to go on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.paravt.lifecycle.checkpoints import last_whole
from recipe.paravt.lifecycle.run_files import MetricsFile

LOG_NAME = "log.txt"
"""In a run's output folder: all that its processes have printed."""

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


def summary_table(output_dir: str, checkpoint_dir: str, window: int = 5) -> str:
    """Means over the first and the last steps, and where to look.

    Args:
        output_dir: a run's output folder.
        checkpoint_dir: the folder of its checkpoints.
        window: steps that a mean is taken over; fewer where the run has less than twice as many.
    """
    folder = Path(output_dir)
    steps = MetricsFile.read(folder / "metrics.jsonl")
    lines = [line for line in steps if ROWS["reward"] in line]
    if not lines:
        return f"No training step has been logged in {folder / 'metrics.jsonl'}."
    width = max(1, min(window, len(lines) // 2))
    first, last = lines[:width], lines[-width:]
    label_width = max(map(len, ROWS))
    table = [
        f"{'':{label_width}}  first {width:>2}   last {width:>2}",
        *(f"{label:{label_width}}  {_mean(first, name):>8}  {_mean(last, name):>8}" for label, name in ROWS.items()),
    ]
    failed = sum(line.get("paravt/failed_sessions") or 0 for line in steps)
    checkpoint = last_whole(Path(checkpoint_dir))
    table += [
        "",
        f"steps {lines[0]['step']} to {lines[-1]['step']}, {failed:g} failed sessions",
        f"metrics      {folder / 'metrics.jsonl'}",
        f"curves       tensorboard --logdir {folder / 'tensorboard'}",
        f"rollouts     {folder / 'rollouts'}",
    ]
    if checkpoint:
        table.append(f"weights      {checkpoint.folder / 'actor' / 'huggingface'}")
    return "\n".join(table)


def end_of_run(output_dir: str, checkpoint_dir: str, command: Sequence[str]) -> str:
    """How far a run came that was ended, its last whole checkpoint, and the command that goes on from there.

    Args:
        command: that started the run.
    """
    lines = MetricsFile.read(Path(output_dir) / "metrics.jsonl")
    checkpoint = last_whole(Path(checkpoint_dir))
    step = f"the last finished step is {lines[-1]['step']}" if lines else "no step was finished"
    saved = f"the last checkpoint is {checkpoint.folder}" if checkpoint else "there is no checkpoint"
    goes_on = "goes on from there" if checkpoint else "starts again"
    return f"{step}; {saved}. The same command {goes_on}:\n  {shlex.join(command)}\n{where_it_is_printed(output_dir)}"


def where_it_is_printed(output_dir: str) -> str:
    """The last line of every error."""
    return f"all that was printed is in {Path(output_dir) / LOG_NAME}"


def step_line(metrics: Mapping[str, Any], seconds_left: float | None) -> str:
    """What is shown of a step.

    Args:
        metrics: its line of ``metrics.jsonl``.
        seconds_left: until the last step; none where that is not known.
    """
    names = {"reward": "reward", "accuracy": "accuracy", "format reward f_τ": "f_τ", "tool calls per rollout κ": "κ"}
    if metrics.get("paravt/skipped_steps"):
        parts = ["skipped: all of its rollouts failed"]
    else:
        parts = [f"{short} {_mean([metrics], ROWS[label])}" for label, short in names.items()]
    if (seconds := metrics.get("timing_s/step")) is not None:
        parts.append(f"{seconds:.1f} s")
    if seconds_left is not None:
        parts.append(time_left(seconds_left))
    if failed := metrics.get("paravt/failed_sessions"):
        parts.append(f"{failed:g} rollouts failed")
    return "  ".join(parts)


def time_left(seconds: float) -> str:
    """In the unit that reads well."""
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


def validation_line(metrics: Mapping[str, Any]) -> str:
    """The accuracies of a validation; empty where the step had none."""
    found = ((re.fullmatch("paravt/val/(.*)/accuracy", name), value) for name, value in metrics.items())
    return "  ".join(f"{match[1]} {value:.3f}" for match, value in found if match and value is not None)
