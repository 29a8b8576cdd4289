"""The V1 trainer ``para_grpo``: hands sessions and anchors to the advantage, logs the paradox metrics.

Importing this module registers the trainer.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import NonTensorStack
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.paravt import verl_adapter
from recipe.paravt.lifecycle import progress
from recipe.paravt.lifecycle.checkpoints import mark_complete, remove_old
from recipe.paravt.lifecycle.progress import Progress
from recipe.paravt.lifecycle.run_files import MetricsFile, write_rollouts
from recipe.paravt.rollout.scoring import anchor_weights
from recipe.paravt.settings import ParaVTSettings
from recipe.paravt.training.advantage import para_grpo_advantage
from recipe.paravt.training.metrics import training_metrics, validation_metrics
from reward_fns.structure import ANCHOR_KINDS

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
"""How often the replay buffer asks for finished rollouts; verl's 2 s is most of a step of a tiny model."""


class NothingToLearnError(Exception):
    """All rollouts of a step failed."""

    def __init__(self, batch: Any):
        super().__init__()
        self.batch = batch


@dataclass(frozen=True)
class FinishedStep:
    """What is known of a step when its weights are updated."""

    batch: Any
    metrics: dict[str, Any]
    seconds: float


@verl_adapter.register_trainer("para_grpo")
class ParaGRPOTrainer(PPOTrainerSync):
    """verl's synchronous trainer with a session and anchor aware advantage."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.settings = ParaVTSettings.from_config(verl_adapter.to_container(config.paravt))
        self._metrics_file: MetricsFile | None = None
        self._finished: FinishedStep | None = None
        self._saved_step: int | None = None
        self._num_fetched = 0
        self._skipped = False

    def _build_replay_buffer(self) -> Any:
        # verl compares the mode with "sync" in several places; this trainer is a synchronous one.
        self.trainer_mode = "sync"
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = _POLL_SECONDS
        return buffer

    def fit(self, agent_loop_manager: Any) -> None:
        self._metrics_file = MetricsFile(Path(self.settings.output_dir) / "metrics.jsonl", self.global_steps)
        super().fit(agent_loop_manager)

    def on_init_end(self) -> None:
        self._report("sending weights to vLLM")
        super().on_init_end()

    def on_step_begin(self) -> None:
        self._report("generating")
        super().on_step_begin()

    def on_sample_end(self) -> None:
        self._report("training")
        super().on_sample_end()

    def on_step_end(self) -> None:
        self._report("sending weights to vLLM")
        super().on_step_end()

    def on_validate_begin(self) -> None:
        self._report("validating")
        super().on_validate_begin()

    def _report(self, phase: str) -> None:
        progress.report(Progress(self.global_steps, phase, self.total_training_steps))

    def _fetch_one_gen_batch(self) -> Any:
        batch = super()._fetch_one_gen_batch()
        # verl names the prompts at random. Names from the step make the order of rows, the seeds of requests and what
        # is logged the same in every run.
        first = self._num_fetched
        self._num_fetched += len(batch)
        names = [f"step{self.global_steps}-{first + position:05d}" for position in range(len(batch))]
        batch["uid"] = NonTensorStack(*names)
        return batch

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int) -> Any:
        try:
            return super()._step_once(metrics, timing_raw, sample_batch_size)
        except NothingToLearnError as nothing:
            logger.warning("step %d is skipped: all of its rollouts failed", self.global_steps)
            self._skipped = True
            return nothing.batch

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        # verl's first step with a sampled batch, before anything is computed on it.
        records = self._records(batch)
        check_failures(records, self._num_sessions, self.settings.limits.max_failed_share)
        if all(record["failure"] for record in records):
            raise NothingToLearnError(batch)
        # In the order of the prompts, not in that of their ends, which no two runs share.
        batch.reorder(sorted(range(len(batch)), key=lambda row: verl_adapter.row_order(batch.keys[row])))
        return super()._balance_batch(batch, *args, **kwargs)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> Any:
        self._num_fetched = 0
        self._skipped = False
        started = time.monotonic()
        batch = super().step(metrics, timing_raw)
        self._finished = FinishedStep(batch, metrics, time.monotonic() - started)
        if progress.stop_requested():
            self._save_checkpoint()
            # verl's loop ends after the last step.
            self.total_training_steps = self.global_steps
        return batch

    def _save_checkpoint(self) -> None:
        if self._saved_step == self.global_steps:
            return
        assert self._finished is not None and self._metrics_file is not None  # verl saves after a step only
        self._report("saving a checkpoint")
        # A run that is interrupted after this step's checkpoint does not come back to this step: first what is known of
        # it, and what is not known before its end follows.
        batch, metrics = self._finished.batch, dict(self._finished.metrics)
        self._write_rollouts(batch)
        epoch = (self.global_steps - 1) // self.steps_per_epoch
        timing = {**self.timing_raw, "step": self._finished.seconds}
        self._compute_metrics(batch, metrics, timing, global_steps=self.global_steps, epoch=epoch)
        super()._save_checkpoint()
        folder = Path(self.config.trainer.default_local_dir)
        mark_complete(folder / f"global_step_{self.global_steps}")
        remove_old(folder, self.settings.checkpoints_to_keep)
        self._saved_step = self.global_steps

    @property
    def _num_sessions(self) -> int:
        """Rollouts that a step should have."""
        return int(self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        # verl's own method applies the KL penalty and the rollout correction; its advantage knows neither
        # sessions nor anchors and is replaced.
        batch = super()._compute_advantage(batch, metrics)
        rewards = "token_level_rewards" if self.config.algorithm.use_kl_in_reward else "rm_scores"
        data = verl_adapter.read_columns(batch, "response_mask", rewards, "extra_fields")
        nested_mask = data["response_mask"]
        mask = nested_mask.to_padded_tensor(0)
        advantages = batch_advantages(
            keys=batch.keys,
            is_padding=[verl_adapter.is_padding(tag) for tag in batch.tags],
            row_rewards=data[rewards].to_padded_tensor(0.0).sum(dim=-1),
            response_mask=mask,
            extra_fields=list(data["extra_fields"]),
            settings=self.settings,
            norm_by_std=self.config.algorithm.norm_adv_by_std_in_grpo,
        )
        columns = {"advantages": advantages, "returns": advantages.clone()}
        return verl_adapter.write_response_columns(batch, nested_mask, columns)

    def _records(self, batch: Any) -> list[Mapping[str, Any]]:
        data = verl_adapter.read_columns(batch, "extra_fields")
        rows = zip(batch.keys, batch.tags, list(data["extra_fields"]), strict=True)
        # One record for each session: its last row is the main agent's.
        records = {
            verl_adapter.session_of_key(key): fields["paravt_record"]
            for key, tag, fields in sorted(rows, key=lambda row: verl_adapter.row_order(row[0]))
            if not verl_adapter.is_padding(tag)
        }
        return list(records.values())

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        if self._skipped:
            # verl's metrics are of columns that this step does not have.
            metrics.update({"training/global_step": global_steps, "training/epoch": epoch})
            metrics.update({f"timing_s/{name}": seconds for name, seconds in timing_raw.items()})
        else:
            super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        metrics["paravt/skipped_steps"] = float(self._skipped)
        metrics.update(training_metrics(self._records(batch), self._num_sessions))
        metrics["paravt/padding_rows"] = float(sum(map(verl_adapter.is_padding, batch.tags)))
        if self._metrics_file is not None:
            self._metrics_file.put(global_steps, metrics)

    def _log_rollout_data(self, batch: Any, timing_raw: Any, rollout_data_dir: str) -> None:
        # verl's dump strips the special tokens from its text, so turns and calls cannot be read from it.
        self._write_rollouts(batch)

    def _write_rollouts(self, batch: Any) -> None:
        if folder := self.config.trainer.rollout_data_dir:
            write_rollouts(Path(folder) / f"{self.global_steps}.jsonl", self._records(batch))

    def _val_metrics_update(
        self,
        data_sources: Sequence[str],
        sample_uids: Sequence[str],
        reward_extra_infos_dict: Mapping[str, Sequence[Any]],
        sample_turns: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, sample_turns, **kwargs
        )
        return metrics | validation_metrics(data_sources, reward_extra_infos_dict)


def check_failures(records: Sequence[Mapping[str, Any]], num_sessions: int, max_failed_share: float) -> None:
    """Ends a run whose step has lost too many rollouts; verl would pad the batch up and go on.

    Args:
        num_sessions: rollouts that there should be.

    Raises:
        RuntimeError: more than ``max_failed_share`` of them failed or are missing.
    """
    failures = [record for record in records if record["failure"]]
    lost = num_sessions - len(records)
    if lost + len(failures) > max_failed_share * num_sessions:
        kinds = Counter(record["failure"] for record in failures)
        example = f"; for example: {failures[0]['failure_reason']}" if failures else ""
        raise RuntimeError(
            f"of {num_sessions} rollouts of this step {lost} were lost and {len(failures)} failed ({dict(kinds)}), "
            f"more than paravt.limits.max_failed_share={max_failed_share} allows{example}"
        )


def batch_advantages(
    *,
    keys: Sequence[str],
    is_padding: Sequence[bool],
    row_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    extra_fields: Sequence[Mapping[str, Any]],
    settings: ParaVTSettings,
    norm_by_std: bool,
) -> torch.Tensor:
    """Advantages of a batch of verl's rows.

    Args:
        keys: verl's row names ``{uid}_{session}_{index}``. Length R.
        is_padding: rows that verl added to fill the batch. Length R.
        row_rewards: every row of a session carries the session's reward. Shape ``[R]``.
        response_mask: Shape ``[R, T]``.
        extra_fields: ``paravt_record``, ``paravt_anchor_flags`` and ``paravt_anchor_positions`` of each row.
            Length R.

    Returns:
        Shape ``[R, T]``; 0 for sessions that failed, which do not count in their group either.
    """
    sessions: dict[str, int] = {}
    groups: dict[str, int] = {}
    row_sessions = torch.full((len(keys),), -1)
    session_groups: list[int] = []
    main_rows: list[int] = []
    order = sorted(range(len(keys)), key=lambda row: verl_adapter.row_order(keys[row]))
    # A sub-agent's row has no record; its session's main row has.
    failed = {
        verl_adapter.session_of_key(key)
        for key, fields in zip(keys, extra_fields, strict=True)
        if (fields["paravt_record"] or {}).get("failure")
    }
    for row in order:
        if is_padding[row] or verl_adapter.session_of_key(keys[row]) in failed:
            # What ended early for a reason that is not the policy's teaches nothing, and must not shift its group.
            continue
        name = verl_adapter.session_of_key(keys[row])
        if name not in sessions:
            sessions[name] = len(sessions)
            session_groups.append(groups.setdefault(verl_adapter.group_of_key(keys[row]), len(groups)))
            main_rows.append(row)
        main_rows[sessions[name]] = row
        row_sessions[row] = sessions[name]

    flags = torch.zeros(len(sessions), len(ANCHOR_KINDS))
    positions = torch.zeros(*response_mask.shape, len(ANCHOR_KINDS), dtype=torch.bool)
    for session, row in enumerate(main_rows):
        flags[session] = torch.tensor(extra_fields[row]["paravt_anchor_flags"])
        for kind, tokens in enumerate(extra_fields[row]["paravt_anchor_positions"]):
            positions[row, list(tokens), kind] = True
    by_token = settings.advantage.anchor_credit == "token"
    return para_grpo_advantage(
        row_rewards[main_rows],
        torch.tensor(session_groups),
        row_sessions,
        response_mask,
        anchor_flags=flags,
        anchor_positions=positions,
        anchor_weights=torch.tensor(anchor_weights(settings)),
        anchor_scale=settings.reward.lambda_anchor * settings.reward.w_fmt if by_token else 0.0,
        norm_by_std=norm_by_std,
        batch_norm=settings.advantage.batch_norm,
    )
