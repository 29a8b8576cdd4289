"""Trains: ``python -m recipe.paravt.main [--config-name vanilla_grpo] [device=cpu] [key=value …]``.

On top of verl's ``ppo_trainer``; settings of ours are under ``paravt:`` (``settings.py``). The run is marked in the
environment before verl is imported, because verl decides on its platform while it is.
"""

from __future__ import annotations

import os
import sys
import traceback
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import hydra
from omegaconf import DictConfig, OmegaConf, open_dict

from recipe.paravt.run_marker import mark_process, run_environment, run_id
from recipe.paravt.settings import ParaVTSettings
from recipe.paravt.summary import summary_table
from recipe.paravt.watch import ProcessWatch, end_of_run


class ConfigurationError(ValueError):
    """The run cannot start as it was asked for."""


class RunFailed(RuntimeError):
    """A process that the run needs has died."""


def requested_device(arguments: Sequence[str]) -> str:
    """``cpu`` or ``cuda``: the last ``device=`` among the command-line arguments, ``cuda`` without one."""
    choices = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("device=")]
    return choices[-1] if choices else "cuda"


def check_configuration(config: DictConfig) -> ParaVTSettings:
    """Checks what can be known before anything starts.

    Raises:
        ConfigurationError: with the key, what it is and what it must be.
    """
    try:
        settings = ParaVTSettings.from_config(
            cast("dict[str, Any]", OmegaConf.to_container(config.paravt, resolve=True))
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    rollout = config.actor_rollout_ref.rollout
    if not rollout.calculate_log_probs:
        raise ConfigurationError("actor_rollout_ref.rollout.calculate_log_probs must be true")
    if not config.trainer.use_v1 or config.trainer.v1.trainer_mode != "para_grpo":
        raise ConfigurationError("the recipe needs trainer.use_v1=true and trainer.v1.trainer_mode=para_grpo")
    if rollout.max_model_len and rollout.prompt_length + rollout.response_length > rollout.max_model_len:
        raise ConfigurationError(
            f"data.max_prompt_length {rollout.prompt_length} + data.max_response_length {rollout.response_length} "
            f"is above actor_rollout_ref.rollout.max_model_len {rollout.max_model_len}"
        )
    for key, frames in (
        ("paravt.fixed_frame_budget", settings.fixed_frame_budget or 0),
        ("paravt.subagent.max_frames", settings.subagent.max_frames),
    ):
        if frames > rollout.limit_images:
            raise ConfigurationError(
                f"{key} is {frames}, more images than vLLM takes: raise actor_rollout_ref.rollout.limit_images "
                f"({rollout.limit_images})"
            )
    return settings


def check_files(config: DictConfig, settings: ParaVTSettings) -> None:
    """Checks that the data and the model are there and that the output folder can be written.

    Raises:
        ConfigurationError: with the path.
    """
    for key in ("train_files", "val_files"):
        files = config.data[key] or []
        for name in [files] if isinstance(files, str) else files:
            if "://" not in name and not Path(name).expanduser().is_file():
                raise ConfigurationError(f"data.{key}: {name} is no file; make it with python -m data_prep rl")
    for name in ("video_root", "val_video_root"):
        folder = getattr(settings, name)
        if folder is not None and not Path(folder).is_dir():
            raise ConfigurationError(f"paravt.{name}: {folder} is no folder")
    model = config.actor_rollout_ref.model.path
    if model.startswith(("/", ".", "~")) and not Path(model).expanduser().is_dir():
        raise ConfigurationError(f"actor_rollout_ref.model.path: {model} is no folder")
    try:
        for folder in ("tensorboard", "rollouts", "checkpoints"):
            (Path(settings.output_dir) / folder).mkdir(parents=True, exist_ok=True)
        probe = Path(settings.output_dir) / f".write-test-{os.getpid()}"
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        raise ConfigurationError(f"paravt.output_dir: cannot write to {settings.output_dir}: {error}") from None


def check_registered() -> None:
    """Checks that verl loaded our plug-in; verl itself goes on without a plug-in that fails.

    Raises:
        ConfigurationError: something is not registered.
    """
    import verl  # noqa: F401  (loads the entry points)
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    registries: dict[str, tuple[str, Any]] = {
        "agent loop": ("paravt_agent", _agent_loop_registry),
        "advantage estimator": ("para_grpo", ADV_ESTIMATOR_REGISTRY),
        "V1 trainer": ("para_grpo", TRAINER_REGISTRY),
    }
    missing = [f"{what} {name!r}" for what, (name, registry) in registries.items() if name not in registry]
    if missing:
        raise ConfigurationError(
            f"verl did not load the plug-in of paravt-verl: {', '.join(missing)} not registered. Install the "
            "package (pip install -e .) in this environment; VERL_USE_EXTERNAL_PLUGINS, if set, must allow paravt"
        )


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
    except (ConfigurationError, RunFailed) as error:
        # Without the traceback that Hydra would put around it: the message says what to do.
        raise SystemExit(f"error: {error}") from None


def _run(config: DictConfig) -> None:
    settings = check_configuration(config)
    check_registered()

    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    if settings.dry_run:
        print(OmegaConf.to_yaml(config, resolve=True))
        return
    check_files(config, settings)
    _make_paths_absolute(config)
    output_dir = config.paravt.output_dir
    _distribute_environment(
        config,
        {
            **run_environment(run_id(), config.trainer.device),
            # The only way that verl's TensorBoard logger takes its folder.
            "TENSORBOARD_DIR": os.path.join(output_dir, "tensorboard"),
        },
    )
    watch = ProcessWatch(lambda: end_of_run(output_dir))
    try:
        with watch:
            run_ppo(config, task_runner_class=TaskRunnerV1)
    except Exception:
        watch.look()
        if watch.trouble:
            traceback.print_exc()
            raise RunFailed(watch.message()) from None
        raise
    print(summary_table(output_dir))


def main() -> None:
    """Entry point: marks the process, then hands over to Hydra."""
    mark_process(os.environ, uuid.uuid4().hex[:12], requested_device(sys.argv[1:]))
    _main()


if __name__ == "__main__":
    main()
