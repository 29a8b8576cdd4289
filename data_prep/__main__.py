"""The command line: ``python -m data_prep {rl,synthetic,inspect} …``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from data_prep.errors import InputError
from data_prep.schema import FRAME_BUDGETS, VALIDATION_FRAME_BUDGET


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not in [0, 1]")
    return value


def _budgets(text: str) -> tuple[int, ...]:
    budgets = tuple(_positive(part) for part in text.split(","))
    if len(set(budgets)) != len(budgets):
        raise argparse.ArgumentTypeError(f"{text} holds a budget twice")
    return budgets


def _add_synthetic(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "synthetic",
        help="videos of coloured shapes with questions whose answers are known",
        description="Writes OUTPUT/videos/*.mp4 and OUTPUT/annotations.jsonl; the same bytes for a seed.",
        epilog="example: python -m data_prep synthetic --output shapes --videos 200 --transcripts 4000",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--videos", type=_positive, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--min-duration-seconds", type=float, default=30.0, metavar="S")
    parser.add_argument("--max-duration-seconds", type=float, default=120.0, metavar="S")
    parser.add_argument("--width", type=_positive, default=64)
    parser.add_argument("--height", type=_positive, default=64)
    parser.add_argument("--fps", type=Fraction, default=Fraction(4), help="frames a second, such as 4 or 30000/1001")
    parser.add_argument("--questions-per-video", type=_positive, default=3, metavar="N")
    parser.add_argument(
        "--transcripts",
        type=_positive,
        metavar="N",
        help="also write OUTPUT/sft-00000.parquet: N conversations of a main agent, a sub-agent's for each that crops",
    )
    parser.add_argument(
        "--frame-budgets",
        type=_budgets,
        default=FRAME_BUDGETS,
        metavar="K,K,…",
        help=f"overview frames of the conversations (default: {','.join(map(str, FRAME_BUDGETS))})",
    )
    parser.add_argument(
        "--tool-share", type=_share, default=0.8, metavar="P", help="share of those that crop (default: 0.8)"
    )
    parser.add_argument("--workers", type=_positive, default=min(2, os.cpu_count() or 1), metavar="N", help="processes")
    parser.set_defaults(run=_synthetic)


def _synthetic(arguments: argparse.Namespace) -> int:
    from data_prep.synthetic import SyntheticSettings, plan_questions, write_dataset
    from data_prep.transcripts import cold_start_rows, write_cold_start

    settings = SyntheticSettings(
        num_videos=arguments.videos,
        seed=arguments.seed,
        min_duration_seconds=arguments.min_duration_seconds,
        max_duration_seconds=arguments.max_duration_seconds,
        width=arguments.width,
        height=arguments.height,
        fps=arguments.fps,
        questions_per_video=arguments.questions_per_video,
    )
    clips = list(write_dataset(settings, arguments.output, arguments.workers))
    asked = [(clip, question) for clip in clips for question in plan_questions(settings, clip)]
    seconds = sum(clip.duration_seconds for clip in clips)
    print(
        f"{len(clips)} videos, {seconds:.0f} s in all, {len(asked)} questions: {arguments.output / 'annotations.jsonl'}"
    )
    if arguments.transcripts:
        rows = cold_start_rows(
            asked, arguments.transcripts, arguments.tool_share, settings.seed, arguments.frame_budgets
        )
        path = write_cold_start(rows, arguments.output)
        main = [row for row in rows if row["agent"] == "main"]
        calling = sum(len(row["messages"]) > 2 for row in main)
        print(f"{len(main)} main conversations ({calling} crop), {len(rows) - len(main)} of sub-agents: {path}")
    return 0


def _add_rl(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "rl",
        help="annotations to parquet rows for training or validation",
        description="""Checks every annotation and writes OUTPUT/rl-epoch*-*.parquet, OUTPUT/rejected.jsonl
        (why not) and OUTPUT/manifest.json (what is there), in place of those of an earlier run. Annotations
        have the fields video, question, answer, question_type (mcq, tvg, oe), and optionally options, id,
        duration_seconds, width, height, num_frames, data_source. Exit status: 0; 1 when nothing was kept; 2
        when the file cannot be read.""",
        epilog="example: python -m data_prep rl --annotations a.jsonl --video-root videos --output rows",
    )
    add = parser.add_argument
    add("--annotations", type=Path, required=True, metavar="FILE", help=".jsonl, .json, .csv or .parquet")
    add("--output", type=Path, required=True, metavar="DIR")
    add(
        "--video-root",
        type=Path,
        metavar="DIR",
        help="folder that the paths in `video` are relative to, here and in training (default: that of FILE)",
    )
    add("--split", choices=("train", "val"), default="train")
    add(
        "--probe",
        choices=("auto", "always", "never"),
        default="auto",
        help="open the videos where duration, size or number of frames is missing, always, or touch none",
    )
    budgets = parser.add_mutually_exclusive_group()
    budgets.add_argument(
        "--frame-budgets",
        type=_budgets,
        metavar="K,K,…",
        help=f"overview frames to draw from (default for train: {','.join(map(str, FRAME_BUDGETS))})",
    )
    budgets.add_argument(
        "--fixed-frame-budget",
        type=_positive,
        metavar="K",
        help=f"the same for all rows (default for val: {VALIDATION_FRAME_BUDGET})",
    )
    add("--epochs", type=_positive, default=1, metavar="N", help="passes, each with its own order and budgets")
    add("--seed", type=int, default=0)
    add("--shard-rows", type=_positive, default=50_000, metavar="N", help="rows of a file (default: 50000)")
    add(
        "--model",
        metavar="DIR",
        help="model whose tokenizer counts the prompts; without it nothing is counted",
    )
    add(
        "--max-prompt-tokens",
        type=_positive,
        metavar="N",
        help="reject questions that are longer at the largest budget; the system message and the tool "
        "schema, which the recipe adds, are not in the count",
    )
    parser.set_defaults(run=_rl)


def _rl(arguments: argparse.Namespace) -> int:
    from data_prep.inspection import aligned
    from data_prep.rl import RlSettings, make_rl_rows
    from data_prep.tokens import PromptCounter

    frame_budgets: tuple[int, ...]
    if arguments.fixed_frame_budget:
        frame_budgets = (arguments.fixed_frame_budget,)
    elif arguments.frame_budgets:
        frame_budgets = arguments.frame_budgets
    else:
        frame_budgets = FRAME_BUDGETS if arguments.split == "train" else (VALIDATION_FRAME_BUDGET,)
    settings = RlSettings(
        annotations=arguments.annotations,
        output=arguments.output,
        video_root=arguments.video_root or arguments.annotations.parent,
        split=arguments.split,
        probe=arguments.probe,
        frame_budgets=frame_budgets,
        epochs=arguments.epochs,
        seed=arguments.seed,
        shard_rows=arguments.shard_rows,
        max_prompt_tokens=arguments.max_prompt_tokens,
    )
    counter = PromptCounter.from_pretrained(arguments.model) if arguments.model else None
    tally = make_rl_rows(settings, counter)
    lines = [["kept", str(tally.num_kept)]]
    lines += [[f"rejected: {reason}", str(count)] for reason, count in tally.rejected.most_common()]
    print(aligned([*lines, ["annotations", str(tally.num_annotations)]]))
    print(f"rows, rejected.jsonl and manifest.json: {settings.output}")
    if not tally.num_kept:
        print("error: nothing was kept", file=sys.stderr)
        return 1
    return 0


def _add_inspect(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "inspect",
        help="a table and a plot of what is there",
        description="Counts rows by source, type and frame budget.",
        epilog="example: python -m data_prep inspect rows",
    )
    parser.add_argument("path", type=Path, metavar="D", help="a folder of `rl`, or one parquet file")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="where the plot goes (default: inspect.png in the folder)"
    )
    parser.set_defaults(run=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    from data_prep.inspection import plot, read_contents, table

    contents = read_contents(arguments.path)
    print(table(contents))
    folder = arguments.path if arguments.path.is_dir() else arguments.path.parent
    picture = arguments.plot or folder / "inspect.png"
    plot(contents, picture)
    print(f"plot: {picture}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0 done, 1 nothing kept, 2 bad arguments or files."""
    parser = argparse.ArgumentParser(prog="python -m data_prep", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_rl(commands)
    _add_synthetic(commands)
    _add_inspect(commands)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except (OSError, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths, where stdout takes ASCII only
    sys.exit(main())
