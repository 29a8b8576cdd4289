"""R_fmt and R_anchor: what the structure of a rollout earns, and where.

The formulas are those of ParaVT (arXiv 2605.20342). A condition counts once for a rollout, however many turns meet
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reward_fns.grammar import Block, Span, TurnStructure
from reward_fns.transcript import Transcript

ANCHOR_KINDS = ("think_closed", "full_flow", "think_unclosed")
"""Kinds of anchor events; their weights are alpha, beta and -gamma."""


@dataclass(frozen=True)
class FormatSettings:
    """Weights of the format reward; defaults are PARA-GRPO's.

    Attributes:
        lambda_anchor: weight of R_anchor in R_fmt; 0 for vanilla GRPO.
        alpha, beta, gamma: weights in R_anchor.
        answer_suffix: whether a final answer earns more and the thinking less.
        think_min_chars: characters of stripped thinking that count as substance.
    """

    lambda_anchor: float = 0.5
    alpha: float = 0.4
    beta: float = 0.3
    gamma: float = 0.3
    answer_suffix: bool = True
    think_min_chars: int = 10


PARA_GRPO_FORMAT = FormatSettings()


@dataclass(frozen=True)
class BaseWeights:
    """Terms of R_base."""

    think: float
    answer_opened: float
    answer_closed: float
    think_before_call: float = 0.3
    balanced: float = 0.1


BASE_WEIGHTS = {True: BaseWeights(0.2, 0.3, 0.2), False: BaseWeights(0.3, 0.2, 0.1)}
"""By ``answer_suffix`` (table of R_base in the paper's published configuration)."""


@dataclass(frozen=True)
class AnchorEvent:
    """One position that the anchor credits or blames.

    Attributes:
        kind: one of ``ANCHOR_KINDS``.
        turn: index of the assistant turn.
        span: characters in that turn's text; empty, at its end, where the turn's last token is meant.
        happened: the rollout's flag b of this kind.
    """

    kind: str
    turn: int
    span: Span
    happened: bool


def format_base(transcript: Transcript, settings: FormatSettings = PARA_GRPO_FORMAT) -> float:
    """R_base, in [0, 1.1]: the terms of ``BASE_WEIGHTS`` that the rollout meets; not clipped."""
    weights = BASE_WEIGHTS[settings.answer_suffix]
    structures = [turn.structure for turn in transcript.turns]
    base = 0.0
    if any(_substantive(think, settings) for s in structures for think in s.thinks):
        base += weights.think
    if any(answer.body for s in structures for answer in s.answers):
        base += weights.answer_opened
    if any(_is_closed_answer(answer) for s in structures for answer in s.answers):
        base += weights.answer_closed
    if any(_thinks_before_call(s) for s in structures):
        base += weights.think_before_call
    if base > 0 and all(s.balanced for s in structures):
        base += weights.balanced
    return base


def anchor_reward(transcript: Transcript, settings: FormatSettings = PARA_GRPO_FORMAT) -> float:
    """R_anchor, in [-gamma, alpha + beta]: the sequence value, before ``lambda_anchor``."""
    closed, flow, unclosed = _anchor_flags(transcript, settings)
    return settings.alpha * closed + settings.beta * flow - settings.gamma * unclosed


def format_reward(transcript: Transcript, settings: FormatSettings = PARA_GRPO_FORMAT) -> float:
    """R_fmt = clip(R_base + lambda_anchor · R_anchor, 0, 1).

    >>> from reward_fns import Turn
    >>> format_reward(Transcript((Turn("<think>The flash is early.</think><answer>B</answer>"),)))
    1.0
    """
    return combine_format(format_base(transcript, settings), anchor_reward(transcript, settings), settings)


def combine_format(base: float, anchor: float, settings: FormatSettings) -> float:
    """R_fmt from its two parts."""
    return min(1.0, max(0.0, base + settings.lambda_anchor * anchor))


def tool_reward(transcript: Transcript, accuracy: float) -> float:
    """R_tool: 0 without a call that parses, 0.1 with one, 0.3 if one was executed, 0.8 if the answer is right too.

    Right means an accuracy of at least 0.5, a choice of this project: the published code takes any above 0, and an
    open-ended F1 of 0.01 is no right answer.

    >>> from reward_fns import Turn
    >>> call = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 5}}</tool_call>'
    >>> tool_reward(Transcript((Turn(call, (True,)),)), accuracy=1.0)
    0.8
    """
    if not transcript.num_calls:
        return 0.0
    if not transcript.num_executed_calls:
        return 0.1
    return 0.8 if accuracy >= 0.5 else 0.3


def is_malformed(transcript: Transcript) -> bool:
    """Whether there is any format error.

    A turn whose thinking is missing, empty or not closed, a tag out of balance, a call that does not parse, or no
    closed, non-empty answer in the last turn. A rollout without turns is malformed.
    """
    if not transcript.turns:
        return True
    for turn in transcript.turns:
        structure = turn.structure
        thinks = structure.thinks
        if not thinks or not all(think.body and think.closing for think in thinks):
            return True
        if structure.errors or not structure.balanced:
            return True
    return not any(_is_closed_answer(answer) for answer in transcript.turns[-1].structure.answers)


def anchor_events(transcript: Transcript, settings: FormatSettings = PARA_GRPO_FORMAT) -> list[AnchorEvent]:
    """Where each anchor kind credits or blames the rollout, by the outcome that the rollout has.

    | kind | happened | did not |
    | --- | --- | --- |
    | think_closed | each ``</think>`` that closes substance | in each turn its ``</think>``, else its last token |
    | full_flow | the last ``</answer>`` after such thinking | last token of the last turn, unless it is answered |
    | think_unclosed | last token of each turn that leaves thinking open | each ``</think>`` |
    """
    closed, flow, unclosed = _anchor_flags(transcript, settings)
    events = [
        AnchorEvent("think_closed", i, span, closed) for i, span in _think_positions(transcript, settings, closed)
    ]
    events += [AnchorEvent("full_flow", i, span, flow) for i, span in _flow_positions(transcript, settings, flow)]
    events += [
        AnchorEvent("think_unclosed", i, span, unclosed) for i, span in _unclosed_positions(transcript, unclosed)
    ]
    return events


def _anchor_flags(transcript: Transcript, settings: FormatSettings) -> tuple[bool, bool, bool]:
    structures = [turn.structure for turn in transcript.turns]
    closed = any(_earns(think, settings) for s in structures for think in s.thinks)
    flow = closed and any(_flow_answer(s, settings) is not None for s in structures)
    unclosed = any(think.closing is None for s in structures for think in s.thinks)
    return closed, flow, unclosed


def _think_positions(transcript: Transcript, settings: FormatSettings, happened: bool) -> Iterator[tuple[int, Span]]:
    for index, turn in enumerate(transcript.turns):
        if happened:
            earning = (think.closing for think in turn.structure.thinks if _earns(think, settings))
            yield from ((index, closing) for closing in earning if closing)
        elif turn.structure.think_closings:
            yield from ((index, closing) for closing in turn.structure.think_closings)
        else:
            yield index, _end(turn.text)


def _flow_positions(transcript: Transcript, settings: FormatSettings, happened: bool) -> Iterator[tuple[int, Span]]:
    if happened:
        for index in range(len(transcript.turns) - 1, -1, -1):
            closing = _flow_answer(transcript.turns[index].structure, settings)
            if closing is not None:
                yield index, closing
                return
    elif transcript.turns:
        last = transcript.turns[-1]
        if not any(_is_closed_answer(answer) for answer in last.structure.answers):
            yield len(transcript.turns) - 1, _end(last.text)


def _unclosed_positions(transcript: Transcript, happened: bool) -> Iterator[tuple[int, Span]]:
    for index, turn in enumerate(transcript.turns):
        if not happened:
            yield from ((index, closing) for closing in turn.structure.think_closings)
        elif any(think.closing is None for think in turn.structure.thinks):
            yield index, _end(turn.text)


def _end(text: str) -> Span:
    return len(text), len(text)


def _substantive(think: Block, settings: FormatSettings) -> bool:
    return len(think.body) >= settings.think_min_chars


def _earns(think: Block, settings: FormatSettings) -> bool:
    return think.closing is not None and _substantive(think, settings)


def _is_closed_answer(answer: Block) -> bool:
    return bool(answer.body) and answer.closing is not None


def _thinks_before_call(structure: TurnStructure) -> bool:
    first_end = min((think.end for think in structure.thinks if think.body), default=None)
    return first_end is not None and any(call.span[0] >= first_end for call in structure.calls)


def _flow_answer(structure: TurnStructure, settings: FormatSettings) -> Span | None:
    """The last ``</answer>`` of a closed, non-empty answer after closed, substantive thinking."""
    first_end = min((think.end for think in structure.thinks if _earns(think, settings)), default=None)
    if first_end is None:
        return None
    closings = (a.closing for a in structure.answers if _is_closed_answer(a) and a.start >= first_end)
    return max((closing for closing in closings if closing), default=None)
