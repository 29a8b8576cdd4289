"""Annotations → checked rows in a keyed random order → parquet shards, with a list of what was rejected."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from data_prep.annotations import Record, read_records
from data_prep.errors import InputError, Rejection
from data_prep.gold import check_answer
from data_prep.hashing import draw_frame_budget, keyed_hash, order_key
from data_prep.questions import user_content
from data_prep.schema import AGENT_NAME, FRAME_BUDGETS, MAX_PIXELS, MIN_PIXELS
from data_prep.shards import ShardWriter
from data_prep.shuffle import sorted_by_key
from data_prep.tokens import PromptCounter
from data_prep.validation import FIELDS, Annotation, content_key, parse_annotation
from data_prep.videos import VideoFacts, VideoProber

REJECTED_FILE = "rejected.jsonl"
MANIFEST_FILE = "manifest.json"
_ABILITIES = {"mcq": "video_qa", "oe": "video_qa", "tvg": "temporal_grounding"}


@dataclass(frozen=True)
class RlSettings:
    """What to make of an annotation file.

    Attributes:
        video_root: folder that the annotations' paths are relative to, here and when training reads the rows.
        frame_budgets: K is drawn uniformly from these for each question and epoch.
        epochs: passes over the questions, each in an order and with budgets of its own.
        shard_rows: rows of a parquet file at most.
        max_prompt_tokens: a question is rejected when it is longer at its largest budget.
    """

    annotations: Path
    output: Path
    video_root: Path
    split: str = "train"
    probe: str = "auto"
    frame_budgets: tuple[int, ...] = FRAME_BUDGETS
    epochs: int = 1
    seed: int = 0
    shard_rows: int = 50_000
    max_prompt_tokens: int | None = None


@dataclass
class Tally:
    """What became of the annotations, and how the rows are distributed."""

    num_annotations: int = 0
    num_kept: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    data_sources: Counter[str] = field(default_factory=Counter)
    question_types: Counter[str] = field(default_factory=Counter)
    ignored_fields: Counter[str] = field(default_factory=Counter)
    frame_budgets: dict[str, Counter[str]] = field(default_factory=dict)
    num_token_bounds: int = 0
    num_prompt_tokens: Counter[int] = field(default_factory=Counter)

    @property
    def num_rejected(self) -> int:
        return self.rejected.total()


def make_rl_rows(settings: RlSettings, counter: PromptCounter | None = None) -> Tally:
    """Writes the shards, ``rejected.jsonl`` and ``manifest.json``, in place of those of an earlier call.

    The rows depend on the annotations' content, the seed and the settings, not on the annotations' order, but
    that of two equal ones the first is kept.

    Args:
        counter: counts prompt tokens; without it the rows hold none.

    Raises:
        InputError: the annotation file cannot be read.
    """
    if settings.max_prompt_tokens is not None and counter is None:
        raise InputError("a limit of prompt tokens needs a tokenizer to count with: give --model too")
    settings.output.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    # Everything is made aside and moved at the end, so that a failed call leaves what was there.
    with tempfile.TemporaryDirectory(prefix=".rl-", dir=settings.output) as folder:
        aside = Path(folder)
        kept = aside / "kept.jsonl"
        with (
            kept.open("w", encoding="utf-8") as kept_file,
            (aside / REJECTED_FILE).open("w", encoding="utf-8") as rejected_file,
        ):
            _sort_out(settings, counter, kept_file, rejected_file, tally)
        shards = _write_epochs(settings, counter, kept, aside, tally)
        manifest = _manifest(settings, tally, shards)
        (aside / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for old in settings.output.glob("rl-epoch*-*.parquet"):
            old.unlink()
        for name in [*shards, REJECTED_FILE, MANIFEST_FILE]:
            (aside / name).replace(settings.output / name)
    return tally


def _sort_out(
    settings: RlSettings, counter: PromptCounter | None, kept: TextIO, rejected: TextIO, tally: Tally
) -> None:
    """Writes every annotation to one of the two files."""
    checker = _Checker(settings, counter)
    for record in read_records(settings.annotations):
        tally.num_annotations += 1
        if isinstance(record.fields, dict):
            tally.ignored_fields.update(str(name) for name in record.fields if name not in FIELDS)
        try:
            annotation = checker.check(record)
        except Rejection as rejection:
            tally.rejected[rejection.reason] += 1
            rejected.write(_rejected_line(record, rejection))
            continue
        tally.num_kept += 1
        tally.data_sources[annotation.data_source] += 1
        tally.question_types[annotation.question_type] += 1
        tally.num_token_bounds += counter is not None and not annotation.facts.complete
        kept.write(json.dumps(asdict(annotation)) + "\n")


class _Checker:
    """Every check of an annotation, in the order from cheap to dear; two equal annotations are found last."""

    def __init__(self, settings: RlSettings, counter: PromptCounter | None):
        self._settings = settings
        self._counter = counter
        self._prober = VideoProber(settings.video_root, settings.probe)
        # Hashes, so that a million annotations take tens of megabytes.
        self._seen_ids: set[int] = set()
        self._seen_contents: set[int] = set()

    def check(self, record: Record) -> Annotation:
        if record.problem is not None:
            raise Rejection("malformed_line", record.problem)
        annotation = parse_annotation(record.fields, default_data_source=self._settings.annotations.stem)
        video = self._prober.relative_path(annotation.video)
        facts = self._prober.complete(video, annotation.facts)
        annotation = replace(annotation, video=video, facts=facts)
        check_answer(annotation)
        self._check_length(annotation)
        self._check_unique(annotation)
        return annotation

    def _check_length(self, annotation: Annotation) -> None:
        limit = self._settings.max_prompt_tokens
        if limit is None or self._counter is None:
            return
        largest = max(self._settings.frame_budgets)
        num_tokens = self._counter.count(_content(annotation), annotation.facts, largest)
        if num_tokens > limit:
            raise Rejection("prompt_too_long", f"{num_tokens} tokens with {largest} frames, the limit is {limit}")

    def _check_unique(self, annotation: Annotation) -> None:
        content = content_key(annotation, annotation.video)
        if content in self._seen_contents:
            raise Rejection("duplicate_question", f"the same is asked of {annotation.video} before")
        question_id = keyed_hash(0, "id", annotation.question_id)
        if question_id in self._seen_ids:
            raise Rejection("duplicate_id", f"the id {annotation.question_id} stands at another question before")
        self._seen_contents.add(content)
        self._seen_ids.add(question_id)


def _content(annotation: Annotation) -> str:
    return user_content(annotation.question, annotation.options)


def _rejected_line(record: Record, rejection: Rejection) -> str:
    line = {"line": record.number, "reason": rejection.reason, "detail": rejection.detail}
    try:
        text = json.dumps({**line, "annotation": record.fields}, allow_nan=False, default=repr)
    except ValueError:
        # NaN or infinity, which JSON has no word for.
        text = json.dumps({**line, "annotation": repr(record.fields)})
    return text + "\n"


def _write_epochs(
    settings: RlSettings, counter: PromptCounter | None, kept: Path, aside: Path, tally: Tally
) -> dict[str, int]:
    """The shards of all epochs; returns their names with their numbers of rows."""
    shards: dict[str, int] = {}
    index = 0
    for epoch in range(settings.epochs):
        budgets: Counter[str] = Counter({str(budget): 0 for budget in settings.frame_budgets})
        with ShardWriter(aside, f"rl-epoch{epoch}", settings.shard_rows) as writer:
            for annotation in _in_order(settings, kept, epoch, tally.num_kept, aside):
                row = _row(settings, counter, annotation, epoch, index)
                index += 1
                budgets[str(row["extra_info"]["frame_budget"])] += 1
                if counter is not None:
                    tally.num_prompt_tokens[row["extra_info"]["num_prompt_tokens"]] += 1
                writer.write(row)
        tally.frame_budgets[str(epoch)] = budgets
        shards.update(writer.shards)
    return shards


def _in_order(settings: RlSettings, kept: Path, epoch: int, num_kept: int, aside: Path) -> Iterator[Annotation]:
    def keyed_lines() -> Iterator[tuple[int, str]]:
        with kept.open(encoding="utf-8") as file:
            for line in file:
                yield order_key(settings.seed, epoch, json.loads(line)["question_id"]), line.rstrip("\n")

    with tempfile.TemporaryDirectory(prefix="buckets-", dir=aside) as folder:
        for line in sorted_by_key(keyed_lines(), num_kept, Path(folder)):
            fields = json.loads(line)
            options = fields.pop("options")
            facts = VideoFacts(**fields.pop("facts"))
            yield Annotation(**fields, options=tuple(options) if options else None, facts=facts)


def _row(
    settings: RlSettings, counter: PromptCounter | None, annotation: Annotation, epoch: int, index: int
) -> dict[str, Any]:
    budget = draw_frame_budget(settings.seed, epoch, annotation.question_id, settings.frame_budgets)
    content = _content(annotation)
    video = {
        "video": annotation.video,
        "nframes": budget,
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
    }
    return {
        "data_source": annotation.data_source,
        "agent_name": AGENT_NAME,
        "prompt": [{"role": "user", "content": content}],
        "videos": [video],
        "ability": _ABILITIES[annotation.question_type],
        "reward_model": {"style": "rule", "ground_truth": annotation.answer},
        "extra_info": {
            "index": index,
            "split": settings.split,
            "question_id": annotation.question_id,
            "question_type": annotation.question_type,
            "question": annotation.question,
            "answer": annotation.answer,
            "options": annotation.options,
            "duration_seconds": annotation.facts.duration_seconds,
            "frame_budget": budget,
            "epoch": epoch,
            "num_prompt_tokens": counter.count(content, annotation.facts, budget) if counter else None,
        },
    }


def _manifest(settings: RlSettings, tally: Tally, shards: dict[str, int]) -> dict[str, Any]:
    return {
        "annotations": settings.annotations.name,
        "video_root": str(settings.video_root),
        "split": settings.split,
        "seed": settings.seed,
        "epochs": settings.epochs,
        "probe": settings.probe,
        "max_prompt_tokens": settings.max_prompt_tokens,
        "num_annotations": tally.num_annotations,
        "num_kept": tally.num_kept,
        "num_rejected": tally.num_rejected,
        "rejected": dict(tally.rejected.most_common()),
        "data_sources": dict(tally.data_sources.most_common()),
        "question_types": dict(tally.question_types.most_common()),
        "ignored_fields": dict(tally.ignored_fields.most_common()),
        "frame_budgets": tally.frame_budgets,
        "num_prompt_tokens": _token_lengths(tally),
        "shards": shards,
    }


def _token_lengths(tally: Tally) -> dict[str, float] | None:
    lengths = tally.num_prompt_tokens
    if not lengths:
        return None
    return {
        "min": min(lengths),
        "mean": sum(length * count for length, count in lengths.items()) / lengths.total(),
        "max": max(lengths),
        # Rows of these hold an upper bound: the size, length or number of frames is not known.
        "num_annotations_with_bounds": tally.num_token_bounds,
    }
