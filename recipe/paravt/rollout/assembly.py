"""Finished and failed rollouts as rows for verl: the one place that knows what a row has to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from data_prep.schema import VIDEO_PLACEHOLDER
from recipe.paravt import verl_adapter
from recipe.paravt.rollout import prompts
from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.episode import Episode
from recipe.paravt.rollout.record import failed_record, rollout_record
from recipe.paravt.rollout.scoring import NO_ANCHORS, Anchors, Score, Scorer
from recipe.paravt.rollout.session import FinishedSession, RolloutFailed
from recipe.paravt.rollout.token_text import TokenDecoder


@dataclass(frozen=True)
class Sampling:
    """How long the server took for a rollout, and with which weights it answered.

    Attributes:
        weight_versions: first and last training step whose weights sampled it.
    """

    seconds: float
    weight_versions: tuple[int, int]


class RowAssembler:
    """Makes rows of rollouts.

    Args:
        scorer: with the run's settings.
        tokenizer, processor: of the model.
        mm_processor_kwargs: plain containers: the processor takes entries out of what it is given.

    Raises:
        Exception: not even a blank conversation can be made; the processor or the tokenizer is broken, which is a fault
            of the run.
    """

    def __init__(self, scorer: Scorer, tokenizer: Any, processor: Any, mm_processor_kwargs: Mapping[str, Any]):
        self._scorer = scorer
        self._processor = processor
        self._mm_processor_kwargs = dict(mm_processor_kwargs)
        self._end_of_turn_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self._blank = self._blank_episode(tokenizer)

    def rows(
        self, group: str, sample: Sample, finished: FinishedSession, sampling: Sampling
    ) -> list[verl_adapter.AgentLoopOutput]:
        """The rows of a finished rollout: its sub-agents', where they were kept, then the main agent's with the reward.

        Args:
            group: verl's uid of the prompt.
        """
        turns = finished.turns
        score = self._scorer.score(sample, [turn.turn for turn in turns], [turn.executed for turn in turns])
        record = rollout_record(group, sample, finished, score)
        subagents = [self._row(episode, score, NO_ANCHORS, None, sampling) for episode in finished.subagents]
        main = self._row(
            finished.main, score, score.anchors, record, sampling, len(turns), tool_seconds=finished.tool_seconds
        )
        return [*subagents, main]

    def failed_row(
        self, group: str, sample: Sample | None, failed: RolloutFailed, step: int
    ) -> verl_adapter.AgentLoopOutput:
        """The row of a rollout that failed: a blank conversation, of which no token carries loss.

        Args:
            sample: none where the row is not even one.
            step: the training step whose weights would have sampled it.
        """
        score = self._scorer.score_nothing(sample)
        record = failed_record(group, sample, failed, score)
        return self._row(self._blank, score, score.anchors, record, Sampling(0.0, (step, step)))

    def _row(
        self,
        episode: Episode,
        score: Score,
        anchors: Anchors,
        record: dict[str, Any] | None,
        sampling: Sampling,
        num_turns: int = 1,
        tool_seconds: float = 0.0,
    ) -> verl_adapter.AgentLoopOutput:
        if not episode.response_ids:
            # verl needs a response; without a sampled token its mask is 0 and it trains nothing.
            episode.append_context([], [self._end_of_turn_id])
        image_token_id = self._processor.image_token_id
        num_runs = count_image_runs(episode.ids, image_token_id)
        if num_runs != len(episode.images):
            raise RuntimeError(f"a conversation has {len(episode.images)} images, but its ids hold {num_runs}")
        return verl_adapter.agent_loop_output(
            prompt_ids=episode.prompt_ids,
            response_ids=episode.response_ids,
            response_mask=episode.response_mask,
            response_log_probs=episode.response_log_probs,
            images=episode.images,
            mm_processor_kwargs=self._mm_processor_kwargs,
            reward=score.reward,
            reward_parts=score.parts,
            num_turns=num_turns,
            timings={"generate_sequences": sampling.seconds, "tool_calls": tool_seconds},
            weight_versions=sampling.weight_versions,
            extra_fields={
                "paravt_record": record,
                "paravt_anchor_flags": anchors.flags,
                "paravt_anchor_positions": anchors.positions,
            },
        )

    def _blank_episode(self, tokenizer: Any) -> Episode:
        """A shortest prompt with one black frame, so that all rows of a batch have the same fields."""
        builder = verl_adapter.token_builder(tokenizer, self._processor, self._mm_processor_kwargs)
        messages = [prompts.user_message(VIDEO_PLACEHOLDER, [0.0])]
        frame = Image.fromarray(np.zeros((32, 32, 3), np.uint8))
        return Episode(builder, TokenDecoder(tokenizer), self._end_of_turn_id, messages, [frame], None)


def count_image_runs(ids: Sequence[int], image_token_id: int) -> int:
    """How many images the placeholder tokens of ``ids`` stand for: runs of ``image_token_id``."""
    is_image: Any = np.asarray(ids) == image_token_id
    return int(is_image[:1].sum() + (is_image[1:] & ~is_image[:-1]).sum())
