"""Cold start: ``torchrun … -m recipe.paravt.training.sft [device=cpu] [key=value …]`` on verl's SFT trainer."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from recipe.paravt.lifecycle.checks import SFT_COLUMNS, ConfigurationError, check_rows
from recipe.paravt.lifecycle.console import Console, print_any_character
from recipe.paravt.lifecycle.leftovers import new_run_id
from recipe.paravt.lifecycle.run_marker import mark_process, on_cpu, requested_device
from recipe.paravt.lifecycle.summary import time_left

_NUM_LINES = 10
"""Of a training whose console is no terminal; chosen here."""


@hydra.main(version_base=None, config_path="../config/sft", config_name="cold_start")
def _main(config: DictConfig) -> None:
    if config.dry_run:
        print(OmegaConf.to_yaml(config, resolve=True))
        return
    rank = int(os.environ.get("RANK", "0"))  # as torchrun numbers them
    try:
        check_rows(config.data, SFT_COLUMNS, "python -m data_prep synthetic --transcripts")
    except ConfigurationError as error:
        raise SystemExit(f"error: {error}" if rank == 0 else 1) from None
    log = Path(config.log_file).absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    with Console(log, verbose=config.verbose, follow=rank == 0) as console:
        try:
            _train(config, console)
        except Exception as error:
            traceback.print_exc()
            message = f"error: rank {rank}: {type(error).__name__}: {error}\nall that was printed is in {log}"
            console.say(message, error=True)
            raise SystemExit(1) from None


def _train(config: DictConfig, console: Console) -> None:
    import torch

    from recipe.paravt import verl_adapter

    # verl's logger takes its folder from here only.
    os.environ["TENSORBOARD_DIR"] = os.path.abspath(os.path.join(config.output_dir, "tensorboard"))
    if on_cpu():
        # verl's function asks for "cpu:gloo,cpu:gloo", which torch refuses.
        torch.distributed.init_process_group("cpu:gloo")
    else:
        verl_adapter.start_process_group()
    from recipe.paravt.training.sft_trainer import ParaVTSFTTrainer

    ParaVTSFTTrainer(config=config, show=_StepLines(console).show).fit()
    verl_adapter.end_process_group()


class _StepLines:
    """Shows the steps: each where stdout is a terminal, else some."""

    def __init__(self, console: Console):
        self._console = console
        self._first: tuple[int, float] | None = None

    def show(self, step: int, num_steps: int, loss: float) -> None:
        """Called when a step has ended."""
        self._first = self._first or (step, time.monotonic())
        if not self._console.is_terminal and step % max(1, num_steps // _NUM_LINES) and step != num_steps:
            return
        text = f"loss {loss:.3f}"
        if step > self._first[0]:
            seconds = (time.monotonic() - self._first[1]) / (step - self._first[0])
            text += f"  {seconds:.1f} s a step  {time_left(seconds * (num_steps - step))}"
        self._console.advance(step, num_steps, text)


def main() -> None:
    """Entry point: marks the process before verl is imported, then hands over to Hydra."""
    print_any_character()
    mark_process(os.environ, new_run_id(), requested_device(sys.argv[1:]))
    _main()


if __name__ == "__main__":
    main()
