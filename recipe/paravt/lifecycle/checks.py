"""What can be known to go wrong before anything starts."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from recipe.paravt import verl_adapter
from recipe.paravt.lifecycle.leftovers import SHARED_MEMORY
from recipe.paravt.settings import ParaVTSettings

RL_COLUMNS = ("data_source", "agent_name", "prompt", "videos", "reward_model", "extra_info")
SFT_COLUMNS = ("agent", "videos", "messages")


class ConfigurationError(ValueError):
    """The run cannot start as it was asked for."""


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
    if config.trainer.max_actor_ckpt_to_keep is not None or config.trainer.max_critic_ckpt_to_keep is not None:
        raise ConfigurationError(
            "trainer.max_actor_ckpt_to_keep must be null: verl removes the old checkpoint before the new one is whole; "
            "set paravt.checkpoints_to_keep"
        )
    if config.actor_rollout_ref.actor.checkpoint.get("async_save"):
        raise ConfigurationError(
            "actor_rollout_ref.actor.checkpoint.async_save must be false: nobody says when such a checkpoint is whole"
        )
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
        for name in _names(config.data, key):
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
        Path(config.trainer.default_local_dir).mkdir(parents=True, exist_ok=True)
        for folder in ("tensorboard", "rollouts"):
            (Path(settings.output_dir) / folder).mkdir(parents=True, exist_ok=True)
        probe = Path(settings.output_dir) / f".write-test-{os.getpid()}"
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        raise ConfigurationError(f"paravt.output_dir: cannot write to {settings.output_dir}: {error}") from None


def check_rows(data: DictConfig, columns: Sequence[str], made_by: str) -> None:
    """Checks, from their metadata, that the parquet files hold rows of the right kind, and a batch of them at least.

    verl divides by the number of batches once everything has started. Files elsewhere (``://``) and of another format
    are left to verl.

    Args:
        data: verl's ``data`` node.
        columns: that every file needs.
        made_by: the command that makes such files.

    Raises:
        ConfigurationError: with the file, or both numbers.
    """
    batch_key = "gen_batch_size" if data.get("gen_batch_size") else "train_batch_size"
    batch = data[batch_key]
    if not isinstance(batch, int) or batch < 1:
        raise ConfigurationError(f"data.{batch_key} is {batch!r}; it must be a whole number above 0")
    train_files, val_files = _names(data, "train_files"), _names(data, "val_files")
    if not train_files:
        raise ConfigurationError(f"data.train_files is empty; it must name files that {made_by} makes")
    if _are_readable(train_files):
        num_rows = sum(_num_rows(name, "data.train_files", columns, made_by) for name in train_files)
        limit = data.get("train_max_samples") or -1
        num_used = min(num_rows, limit) if limit > 0 else num_rows
        if num_used < batch:
            used = f", of which data.train_max_samples uses {num_used}" if num_used < num_rows else ""
            raise ConfigurationError(
                f"data.train_files: there are {num_rows} rows{used}, and one batch takes {batch} (data.{batch_key}): "
                f"lower it, or give more rows; files: {', '.join(train_files)}"
            )
    if not val_files or not _are_readable(val_files):
        return
    if not sum(_num_rows(name, "data.val_files", columns, made_by) for name in val_files):
        raise ConfigurationError(f"data.val_files: there are no rows in {', '.join(val_files)}")


def _names(data: DictConfig, key: str) -> list[str]:
    files = data.get(key) or []
    return [files] if isinstance(files, str) else list(files)


def _are_readable(names: Sequence[str]) -> bool:
    """Whether all of them are parquet files of this machine."""
    return all("://" not in name and name.endswith(".parquet") for name in names)


def _num_rows(name: str, key: str, columns: Sequence[str], made_by: str) -> int:
    import pyarrow
    import pyarrow.parquet

    path = Path(name).expanduser()
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            num_rows, present = file.metadata.num_rows, file.schema_arrow.names
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigurationError(f"{key}: {path} cannot be read as parquet: {error}") from None
    if missing := [name for name in columns if name not in present]:
        raise ConfigurationError(
            f"{key}: {path} has no column {', '.join(missing)}, only {', '.join(present)}; {made_by} makes such files"
        )
    return int(num_rows)


def check_registered() -> None:
    """Checks that verl loaded our plug-in; verl itself goes on without a plug-in that fails.

    Raises:
        ConfigurationError: something is not registered.
    """
    missing = verl_adapter.missing_registrations("paravt_agent", "para_grpo", "para_grpo")
    if missing:
        raise ConfigurationError(
            f"verl did not load the plug-in of paravt-verl: {', '.join(missing)} not registered. Install the "
            "package (pip install -e .) in this environment; VERL_USE_EXTERNAL_PLUGINS, if set, must allow paravt"
        )


def _num_parameters(model: Path) -> tuple[int, int]:
    """Parameters of a model folder: all, and those of the language model; zeros where it holds no safetensors."""
    from safetensors import SafetensorError, safe_open

    total = language = 0
    for path in model.glob("*.safetensors"):
        try:
            with safe_open(path, framework="numpy") as weights:
                for name in weights.keys():  # noqa: SIM118  (no dict: it cannot be iterated)
                    size = math.prod(weights.get_slice(name).get_shape())
                    total += size
                    language += size * ("visual" not in name)
        except SafetensorError as error:
            raise ConfigurationError(f"{path} holds no weights (git lfs pull?): {error}") from None
    return total, language


def checkpoint_bytes(config: DictConfig) -> int:
    """What one checkpoint takes at least; 0 where it is not known before the model is downloaded."""
    actor = config.actor_rollout_ref.actor
    model = Path(config.actor_rollout_ref.model.path)
    total, language = _num_parameters(model) if model.is_dir() else (0, 0)
    contents = actor.checkpoint.save_contents
    weight_bytes = 2 if actor.fsdp_config.model_dtype in ("bfloat16", "bf16", "float16", "fp16") else 4
    return (
        total * weight_bytes * ("model" in contents)
        # Adam's two moments of what is trained
        + 2 * language * weight_bytes * ("optimizer" in contents)
        + total * 2 * ("hf_model" in contents)
    )


def disk_is_full(config: DictConfig) -> bool:
    """Whether the next checkpoint does not fit on the disk."""
    return shutil.disk_usage(config.trainer.default_local_dir).free < checkpoint_bytes(config)


def check_disk(config: DictConfig) -> None:
    """Checks that one checkpoint fits on the disk.

    Raises:
        ConfigurationError: with what is free and what is needed.
    """
    folder = Path(config.trainer.default_local_dir)
    needed, free = checkpoint_bytes(config), shutil.disk_usage(folder).free
    if config.trainer.save_freq > 0 and free < needed:
        raise ConfigurationError(
            f"{folder}: {free / 1e9:.1f} GB are free, and one checkpoint takes at least {needed / 1e9:.1f} GB; "
            "make room, choose another paravt.output_dir, or take something out of "
            "actor_rollout_ref.actor.checkpoint.save_contents"
        )


def check_shared_memory(config: DictConfig) -> None:
    """Checks that on the CPU, where weights go to vLLM through shared memory, a bucket of them fits there.

    Raises:
        ConfigurationError: with what is free and what is needed.
    """
    needed = config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
    free = shutil.disk_usage(SHARED_MEMORY).free
    if config.trainer.device == "cpu" and free < needed:
        raise ConfigurationError(
            f"{SHARED_MEMORY}: {free >> 20} MiB are free, and a bucket of weights takes {needed >> 20} MiB; "
            "make it larger (docker run --shm-size), or lower "
            "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
        )
