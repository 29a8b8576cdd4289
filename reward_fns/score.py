"""The reward of a rollout, as numbers with names: R = R_acc + w_fmt · R_fmt + w_tool · R_tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from reward_fns.choice import mcq_accuracy
from reward_fns.spans import temporal_iou
from reward_fns.structure import FormatSettings, anchor_reward, combine_format, format_base, is_malformed, tool_reward
from reward_fns.text import exact_match, token_f1
from reward_fns.transcript import Transcript

OPEN_ENDED: Mapping[str, Callable[[str, str], float]] = {"f1": token_f1, "exact": exact_match}
"""How open-ended answers may be graded."""

QUESTION_TYPES = ("mcq", "tvg", "oe")
"""Multiple choice, temporal grounding, open-ended."""


@dataclass(frozen=True)
class RewardSettings(FormatSettings):
    """Settings of ``compute_score``; defaults are PARA-GRPO's.

    Attributes:
        w_fmt, w_tool: weights of R_fmt and R_tool.
        anchor_in_score: whether ``score`` holds the anchor term inside R_fmt, as published. Without it, the anchor
            is left to a per-token advantage.
        forced_prefix: what every assistant turn was forced to start with, where the string does not hold it.
        open_ended: a key of ``OPEN_ENDED``.

    Raises:
        ValueError: ``open_ended`` has another value.
    """

    w_fmt: float = 1.0
    w_tool: float = 1.0
    anchor_in_score: bool = True
    forced_prefix: str = ""
    open_ended: str = "f1"

    def __post_init__(self) -> None:
        if self.open_ended not in OPEN_ENDED:
            raise ValueError(f"open_ended is {self.open_ended!r}; it must be one of {', '.join(OPEN_ENDED)}")


@dataclass(frozen=True)
class RewardBreakdown:
    """A rollout's reward and its parts.

    Attributes:
        score: R, with the settings' weights.
        acc: R_acc, in [0, 1].
        format: R_fmt, in [0, 1], the anchor term included.
        format_base: R_base, in [0, 1.1].
        anchor: R_anchor before ``lambda_anchor``.
        tool: R_tool, one of 0, 0.1, 0.3, 0.8.
        num_calls: calls that parse.
        num_executed_calls: calls that a summary came back for.
        num_turns: assistant turns.
        answered: 1 where there is a non-empty answer.
        malformed: 1 where there is any format error.
        judge_fallback: 1 where a judge failed and the fallback graded.
    """

    score: float
    acc: float
    format: float
    format_base: float
    anchor: float
    tool: float
    num_calls: float
    num_executed_calls: float
    num_turns: float
    answered: float
    malformed: float
    judge_fallback: float = 0.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, float]:
    """veRL's custom reward function: the fields of ``RewardBreakdown``, all floats, the same keys always.

    Args:
        data_source: not used; veRL passes it.
        solution_str: the rollout as veRL decodes it; see ``Transcript.from_text``.
        ground_truth: the right answer.
        extra_info: may hold ``question_type`` (``mcq``, ``tvg`` or ``oe``; missing: ``mcq`` with options, else
            ``oe``), ``options``, ``duration_seconds``, ``question``, and ``transcript``, a ``Transcript`` that is
            scored instead of ``solution_str``.
        settings: fields of ``RewardSettings``.

    Raises:
        TypeError: a setting that does not exist.
        ValueError: another question type, or a setting out of range.

    >>> text = "<think>The flash is early in the video.</think><answer>B</answer>"
    >>> compute_score("any", text, "B", {"question_type": "mcq"})["score"]
    2.0
    """
    info = extra_info or {}
    reward_settings = _settings(tuple(sorted(settings.items())))
    transcript = _transcript(solution_str, info, reward_settings)
    acc = _accuracy(transcript, ground_truth, info, reward_settings)
    # A copy of the instance's own dictionary: dataclasses.asdict takes five times as long.
    return dict(vars(score_transcript(transcript, acc, reward_settings)))


async def acompute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    judge: Mapping[str, Any],
    **settings: Any,
) -> dict[str, float]:
    """``compute_score`` with a language model that grades open-ended answers.

    Args:
        judge: fields of ``reward_fns.judge.JudgeSettings``; ``base_url`` and ``model`` at least.

    Raises:
        JudgeError: the judge failed and its fallback is ``raise``; with ``f1`` the key ``judge_fallback`` is 1.
        TypeError, ValueError: as ``compute_score``.
    """
    from reward_fns.judge import JudgeSettings, shared_judge

    info = extra_info or {}
    reward_settings = _settings(tuple(sorted(settings.items())))
    transcript = _transcript(solution_str, info, reward_settings)
    fell_back = False
    if _question_type(info.get("question_type"), info.get("options")) == "oe" and transcript.answer:
        grader = shared_judge(JudgeSettings.from_mapping(judge))
        question, truth = str(info.get("question") or ""), "" if ground_truth is None else str(ground_truth)
        acc, fell_back = await grader.accuracy(question, transcript.answer, truth)
    else:
        acc = _accuracy(transcript, ground_truth, info, reward_settings)
    parts = dict(vars(score_transcript(transcript, acc, reward_settings)))
    parts["judge_fallback"] = float(fell_back)
    return parts


def _transcript(solution_str: str, info: Mapping[str, Any], settings: RewardSettings) -> Transcript:
    given: Transcript | None = info.get("transcript")
    return Transcript.from_text(solution_str, settings.forced_prefix) if given is None else given


def _accuracy(transcript: Transcript, ground_truth: Any, info: Mapping[str, Any], settings: RewardSettings) -> float:
    return accuracy(
        transcript.answer,
        "" if ground_truth is None else str(ground_truth),
        question_type=info.get("question_type"),
        options=info.get("options"),
        duration_seconds=info.get("duration_seconds"),
        open_ended=settings.open_ended,
    )


def _question_type(name: str | None, options: Sequence[str] | None) -> str:
    if name is None:
        return "mcq" if options is not None and len(options) else "oe"
    if name not in QUESTION_TYPES:
        raise ValueError(f"question_type is {name!r}; it must be one of {', '.join(QUESTION_TYPES)}")
    return name


def accuracy(
    answer: str | None,
    ground_truth: str,
    *,
    question_type: str | None = None,
    options: Sequence[str] | None = None,
    duration_seconds: float | None = None,
    open_ended: str = "f1",
) -> float:
    """R_acc of an answer, in [0, 1]; 0 for none.

    Raises:
        ValueError: a question type that is not of ``QUESTION_TYPES``.
    """
    question_type = _question_type(question_type, options)
    if not answer:
        return 0.0
    if question_type == "mcq":
        return mcq_accuracy(answer, ground_truth, options)
    if question_type == "tvg":
        return temporal_iou(answer, ground_truth, duration_seconds)
    return OPEN_ENDED[open_ended](answer, ground_truth)


def score_transcript(transcript: Transcript, acc: float, settings: RewardSettings) -> RewardBreakdown:
    """The reward of a rollout whose answer has the accuracy ``acc``."""
    base, anchor = format_base(transcript, settings), anchor_reward(transcript, settings)
    full = combine_format(base, anchor, settings)
    scored = full if settings.anchor_in_score else min(1.0, max(0.0, base))
    tool = tool_reward(transcript, acc)
    return RewardBreakdown(
        score=acc + settings.w_fmt * scored + settings.w_tool * tool,
        acc=acc,
        format=full,
        format_base=base,
        anchor=anchor,
        tool=tool,
        num_calls=float(transcript.num_calls),
        num_executed_calls=float(transcript.num_executed_calls),
        num_turns=float(len(transcript)),
        answered=float(transcript.answer is not None),
        malformed=float(is_malformed(transcript)),
    )


@lru_cache(maxsize=64)
def _settings(items: tuple[tuple[str, Any], ...]) -> RewardSettings:
    known = [field.name for field in fields(RewardSettings)]
    unknown = [name for name, _ in items if name not in known]
    if unknown:
        raise TypeError(f"unknown setting {unknown[0]!r} of compute_score; there are {', '.join(known)}")
    return RewardSettings(**dict(items))
