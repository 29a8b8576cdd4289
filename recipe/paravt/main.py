"""Trains: ``python -m recipe.paravt.main [--config-name vanilla_grpo] [device=cpu] [key=value …]``.

On top of verl's ``ppo_trainer``; settings of ours are under ``paravt:`` (``settings.py``). The run is marked in the
environment before verl is imported, because verl decides on its platform while it is.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import IO

import hydra
from omegaconf import DictConfig, OmegaConf, open_dict

from recipe.paravt import verl_adapter
from recipe.paravt.lifecycle import leftovers
from recipe.paravt.lifecycle.checkpoints import choose
from recipe.paravt.lifecycle.checks import (
    RL_COLUMNS,
    ConfigurationError,
    check_configuration,
    check_disk,
    check_files,
    check_registered,
    check_rows,
    check_shared_memory,
    disk_is_full,
)
from recipe.paravt.lifecycle.console import Console, print_any_character
from recipe.paravt.lifecycle.guard import Guard, own_command
from recipe.paravt.lifecycle.log_lines import OURS
from recipe.paravt.lifecycle.run_files import lock_folder
from recipe.paravt.lifecycle.run_marker import mark_process, requested_device, run_environment, run_id
from recipe.paravt.lifecycle.step_lines import StepLines
from recipe.paravt.lifecycle.stop import StoppableRunner
from recipe.paravt.lifecycle.summary import LOG_NAME, end_of_run, summary_table, where_it_is_printed
from recipe.paravt.lifecycle.watch import ProcessWatch, WatchSettings
from recipe.paravt.settings import ParaVTSettings


class RunFailed(RuntimeError):
    """The run has ended before its last step."""


def _make_paths_absolute(config: DictConfig) -> None:
    """Resolves local paths here: on an existing cluster, Ray's processes have another working directory."""

    def absolute(path: str) -> str:
        return path if "://" in path else os.path.abspath(os.path.expanduser(path))

    for key in ("train_files", "val_files"):
        files = config.data[key]
        if files:
            config.data[key] = absolute(files) if isinstance(files, str) else [absolute(name) for name in files]
    for key in ("output_dir", "video_root", "val_video_root"):
        if config.paravt[key]:
            config.paravt[key] = absolute(config.paravt[key])
    for key in ("default_local_dir", "rollout_data_dir"):
        if config.trainer[key]:
            config.trainer[key] = absolute(config.trainer[key])
    # A model that is no folder here is a name on the hub.
    if Path(config.actor_rollout_ref.model.path).expanduser().is_dir():
        config.actor_rollout_ref.model.path = absolute(config.actor_rollout_ref.model.path)


def _distribute_environment(config: DictConfig, variables: dict[str, str]) -> None:
    """Gives ``variables`` to every process that Ray starts, also on other nodes."""
    runtime_env = OmegaConf.to_container(config.ray_kwargs.ray_init.get("runtime_env") or {}, resolve=True)
    assert isinstance(runtime_env, dict)
    runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), **variables}
    with open_dict(config):
        config.ray_kwargs.ray_init.runtime_env = runtime_env


@hydra.main(version_base=None, config_path="config", config_name="para_grpo")
def _main(config: DictConfig) -> None:
    try:
        _run(config)
    except ConfigurationError as error:
        # Without the traceback that Hydra would put around it: the message says what to do.
        raise SystemExit(f"error: {error}") from None


def _run(config: DictConfig) -> None:
    settings = check_configuration(config)
    if settings.dry_run:
        check_registered()
        verl_adapter.validate(config)
        print(OmegaConf.to_yaml(config, resolve=True))
        return
    _make_paths_absolute(config)
    check_files(config, settings)
    check_rows(config.data, RL_COLUMNS, "python -m data_prep rl")
    check_disk(config)
    check_shared_memory(config)
    output_dir = Path(config.paravt.output_dir)
    try:
        lock = lock_folder(output_dir)
    except BlockingIOError as error:
        raise ConfigurationError(f"paravt.output_dir: {error}") from None
    with lock, Console(output_dir / LOG_NAME, verbose=settings.verbose) as console:
        console.say(f"{OURS} starting; all that is printed goes to {console.log}")
        try:
            check_registered()
            verl_adapter.validate(config)
            _choose_checkpoint(config, console)
            _train(config, settings, lock, console)
        except Exception as error:
            message = str(error)
            if not isinstance(error, ConfigurationError | RunFailed):
                traceback.print_exc()
                message = f"{type(error).__name__}: {error}"
            if not isinstance(error, RunFailed):  # which says it itself
                message += f"\n{where_it_is_printed(str(output_dir))}"
            console.finish()
            console.say(f"error: {message}", error=True)
            raise SystemExit(1) from None


def _choose_checkpoint(config: DictConfig, console: Console) -> None:
    """With ``resume_mode=auto``: goes on from the last whole checkpoint."""
    if config.trainer.resume_mode != "auto":
        return
    chosen = choose(Path(config.trainer.default_local_dir), console.say)
    if chosen:
        config.trainer.resume_mode = "resume_path"
        config.trainer.resume_from_path = str(chosen.folder)
    else:
        config.trainer.resume_mode = "disable"


def _train(config: DictConfig, settings: ParaVTSettings, lock: IO[str], console: Console) -> None:
    """Runs verl's trainer under the eyes of the guard and the watch.

    Raises:
        RunFailed: with what died, or what verl raised, how far the run came and how to go on.
    """
    output_dir = config.paravt.output_dir
    _distribute_environment(
        config,
        {
            **run_environment(run_id(), config.trainer.device),
            **leftovers.environment(run_id()),
            # The only way that verl's TensorBoard logger takes its folder.
            "TENSORBOARD_DIR": os.path.join(output_dir, "tensorboard"),
        },
    )
    os.environ.update(leftovers.environment(run_id()))
    tempfile.tempdir = None  # Python remembers the folder it was asked for first
    run = {"output_dir": output_dir, "checkpoint_dir": config.trainer.default_local_dir}
    guard = Guard(**run, keep_open=lock, stderr=console.stderr)
    watch = ProcessWatch(
        lambda: end_of_run(**run, command=own_command()),
        guard,
        WatchSettings(phase_seconds=settings.limits.phase_seconds),
        report=lambda message: console.say(f"error: {message}", error=True),
    )
    console.look = StepLines(Path(output_dir) / "metrics.jsonl", lambda: watch.progress, console).look
    runner = StoppableRunner()
    failed = True
    try:
        with watch:
            verl_adapter.run_ppo(config, runner)
        failed = False
    except Exception as error:
        traceback.print_exc()
        watch.look()
        last_line = (str(error).strip().splitlines() or [""])[-1]
        watch.trouble = watch.trouble or f"{type(error).__name__}: {last_line}"
        if disk_is_full(config):
            watch.trouble += f" (the disk is full: {config.trainer.default_local_dir})"
        raise RunFailed(watch.message()) from None
    except KeyboardInterrupt:
        if runner.ends_now:
            raise SystemExit(runner.exit_code) from None
        raise
    finally:
        _leave_ray()
        guard.close(failed)
    console.finish()
    console.say(summary_table(**run))
    if runner.stop_asked:
        console.say(f"{OURS} stopped on SIGTERM. {end_of_run(**run, command=own_command())}")
        raise SystemExit(runner.exit_code)


def _leave_ray() -> None:
    """Lets Ray end what it started, for at most 20 s: where its own processes hang, the guard ends them."""
    import ray

    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(20)


def main() -> None:
    """Entry point: marks the process, then hands over to Hydra."""
    print_any_character()
    mark_process(os.environ, leftovers.new_run_id(), requested_device(sys.argv[1:]))
    _main()


if __name__ == "__main__":
    main()
