"""verl's SFT trainer with checkpoints that are whole, kept in the number asked for, and resumed where they were."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.checkpoint.checkpoint_handler import CheckpointHandler

from recipe.paravt import verl_adapter
from recipe.paravt.lifecycle.checkpoints import choose, mark_complete, remove_old


class WholeCheckpoints(CheckpointHandler):
    """verl's handler, which forgets on a resume which checkpoints it has saved, and skips an epoch at its end.

    Args:
        max_ckpt_to_keep: whole checkpoints that are kept, those of the run before included; none: all.
    """

    def __init__(self, *args: Any, max_ckpt_to_keep: int | None = None, **kwargs: Any):
        super().__init__(*args, max_ckpt_to_keep=None, **kwargs)
        self._num_kept = max_ckpt_to_keep

    def save_checkpoint(self, step: int) -> None:
        super().save_checkpoint(step)
        folder = Path(self.default_local_dir)
        if self.rank == 0:
            mark_complete(folder / f"global_step_{step}")
            if self._num_kept:
                remove_old(folder, self._num_kept)

    def _find_latest_checkpoint(self) -> str | None:
        checkpoint = choose(Path(self.default_local_dir), print if self.rank == 0 else lambda _: None)
        return str(checkpoint.folder) if checkpoint else None

    def _load_dataloader_state(self, checkpoint_path: str) -> None:
        # At the end of an epoch the state is that of a loader which has nothing left: the epoch that follows would be
        # over before its first batch.
        if self.resume_global_step % len(self.train_dataloader):
            super()._load_dataloader_state(checkpoint_path)


class ParaVTSFTTrainer(SFTTrainer):
    """verl's trainer with ``WholeCheckpoints``.

    Args:
        show: called on rank 0 when a step has ended, with its number, the last one's, and its loss.
    """

    def __init__(self, config: Any, show: Callable[[int, int, float], None]):
        super().__init__(config)
        self._show = show

    def _build_ckpt_handler(self) -> None:
        trainer: Any = self.config.trainer
        self.ckpt_handler = WholeCheckpoints(
            engine=self.engine,
            train_dataloader=self.train_dataloader,
            default_local_dir=trainer.default_local_dir,
            max_ckpt_to_keep=trainer.max_ckpt_to_keep,
            default_hdfs_dir=trainer.default_hdfs_dir,
            resume_mode=trainer.resume_mode,
            resume_from_path=trainer.resume_from_path,
            lora_train_meta=self._get_lora_train_meta(),
        )

    def fit(self) -> None:
        if self.resume_global_step >= self.total_training_steps:
            # verl's loop would make one step more.
            if self.rank == 0:
                print(f"[paravt] step {self.resume_global_step} is done; trainer.total_training_steps is the end")
            return
        self._show_steps()
        super().fit()

    def _show_steps(self) -> None:
        # verl's loop has no hook.
        train_batch = self.training_client.train_batch
        steps = itertools.count(self.resume_global_step + 1)

        def train_and_show(data: Any) -> Any:
            output = train_batch(data=data)
            if self.rank == 0:
                self._show(next(steps), self.total_training_steps, verl_adapter.step_loss(output))
            return output

        self.training_client.train_batch = train_and_show
