"""Cold start: ``torchrun … -m recipe.paravt.training.sft [device=cpu] [key=value …]`` on verl's SFT trainer."""

from __future__ import annotations

import os
import sys

import hydra
from omegaconf import DictConfig, OmegaConf

from recipe.paravt.lifecycle.leftovers import new_run_id
from recipe.paravt.lifecycle.run_marker import mark_process, on_cpu, requested_device


@hydra.main(version_base=None, config_path="../config/sft", config_name="cold_start")
def _main(config: DictConfig) -> None:
    if config.dry_run:
        print(OmegaConf.to_yaml(config, resolve=True))
        return
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

    ParaVTSFTTrainer(config=config).fit()
    verl_adapter.end_process_group()


def main() -> None:
    """Entry point: marks the process before verl is imported, then hands over to Hydra."""
    mark_process(os.environ, new_run_id(), requested_device(sys.argv[1:]))
    _main()


if __name__ == "__main__":
    main()
