"""Every shipped configuration composes, passes our checks, and holds method values."""

import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from safetensors.torch import load_file

from recipe.paravt import main
from recipe.paravt.lifecycle.checks import (
    ConfigurationError,
    check_configuration,
    check_disk,
    check_files,
    check_shared_memory,
    checkpoint_bytes,
)
from recipe.paravt.main import requested_device

CONFIG = Path(main.__file__).parent / "config"


def composed(name, *overrides, folder=CONFIG):
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose(config_name=name, overrides=list(overrides))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("name", ["para_grpo", "vanilla_grpo"])
def test_training_configurations_compose(name, device):
    config = composed(name, f"device={device}")
    OmegaConf.to_container(config, resolve=True)
    check_configuration(config)
    assert config.trainer.device == device


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_cold_start_configuration_composes(device):
    config = composed("cold_start", f"device={device}", folder=CONFIG / "sft")
    OmegaConf.to_container(config, resolve=True)
    assert (config.optim.lr, config.optim.lr_scheduler_type) == (2e-5, "cosine")
    assert config.trainer.total_training_steps == 500 and config.data.max_length == 8192


def test_published_values_of_the_run():
    config = composed("para_grpo")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (rollout.n, rollout.temperature, rollout.max_model_len) == (8, 0.7, 32_768)
    assert config.paravt.max_new_tokens == 2048
    assert (actor.optim.lr, actor.optim.weight_decay, actor.optim.clip_grad) == (2e-6, 0.01, 1.0)
    assert list(actor.optim.betas) == [0.9, 0.999] and actor.optim.lr_scheduler_type == "constant"
    assert (actor.clip_ratio, actor.use_kl_loss, actor.kl_loss_coef) == (0.2, True, 0.01)
    assert (actor.kl_loss_type, actor.loss_agg_mode) == ("low_var_kl", "token-mean")
    assert config.data.train_batch_size == actor.ppo_mini_batch_size == 80
    assert config.data.shuffle is False and "hf_model" in actor.checkpoint.save_contents


def test_the_arms_differ_in_what_the_paper_says():
    arms = {}
    for name in ("para_grpo", "vanilla_grpo"):
        paravt = composed(name).paravt
        reward = paravt.reward
        arms[name] = (
            paravt.forced_prefix,
            reward.answer_suffix,
            reward.lambda_anchor,
            reward.w_tool,
            paravt.fixed_frame_budget,
        )
    assert arms == {"para_grpo": ("<think>\n", True, 0.5, 1.0, None), "vanilla_grpo": ("", False, 0.0, 1.0, 64)}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("paravt.max_turns=0", "max_turns is 0"),
        ("+paravt.max_turn=3", "unknown setting paravt.max_turn"),
        ("trainer.v1.trainer_mode=sync", "trainer_mode=para_grpo"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "calculate_log_probs must be true"),
        ("data.max_response_length=30000", "max_model_len 32768"),
        ("trainer.max_actor_ckpt_to_keep=1", "paravt.checkpoints_to_keep"),
        ("actor_rollout_ref.actor.checkpoint.async_save=true", "async_save must be false"),
    ],
)
def test_what_cannot_run_is_named(override, message):
    with pytest.raises(ConfigurationError) as error:
        check_configuration(composed("para_grpo", override))
    assert message in str(error.value)


def test_files_that_are_not_there_are_named(tmp_path):
    rows, folder = tmp_path / "rows.parquet", tmp_path / "out"
    rows.touch()
    files = [f"data.train_files={rows}", f"data.val_files={rows}", f"paravt.output_dir={folder}"]
    model = f"actor_rollout_ref.model.path={tmp_path}"

    def check(*overrides):
        config = composed("para_grpo", *files, model, *overrides)
        check_files(config, check_configuration(config))

    check()
    for override, message in (
        ("data.train_files=[nowhere.parquet]", "data.train_files: nowhere.parquet is no file"),
        ("paravt.video_root=/nowhere", "paravt.video_root: /nowhere is no folder"),
        ("paravt.val_video_root=/nowhere", "paravt.val_video_root: /nowhere is no folder"),
        ("actor_rollout_ref.model.path=/nowhere", "actor_rollout_ref.model.path: /nowhere is no folder"),
        (f"paravt.output_dir={rows}/out", "cannot write to"),
    ):
        with pytest.raises(ConfigurationError) as error:
            check(override)
        assert message in str(error.value)


def test_a_disk_that_is_too_small_is_named(tmp_path, tiny_model, monkeypatch):
    config = composed("para_grpo", f"paravt.output_dir={tmp_path}", f"actor_rollout_ref.model.path={tiny_model}")
    (tmp_path / "checkpoints").mkdir()
    check_disk(config)
    # Weights and two moments in float32 (the moments of the language model only), and a copy in two bytes.
    needed = checkpoint_bytes(config)
    parameters = sum(weight.numel() for weight in load_file(tiny_model / "model.safetensors").values())
    assert 6 * parameters < needed < 14 * parameters
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    with pytest.raises(ConfigurationError, match=r"one checkpoint takes at least .* GB; make room"):
        check_disk(config)
    config.trainer.save_freq = -1
    check_disk(config)


def test_shared_memory_that_is_too_small_is_named(monkeypatch):
    usage = shutil.disk_usage("/dev/shm")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 << 20))
    with pytest.raises(ConfigurationError, match=r"/dev/shm: 10 MiB are free, and a bucket of weights takes 64 MiB"):
        check_shared_memory(composed("para_grpo", "device=cpu"))
    check_shared_memory(composed("para_grpo"))


def test_the_device_is_the_last_one_asked_for():
    assert requested_device([]) == "cuda"
    assert requested_device(["device=cpu", "x=1"]) == "cpu"
    assert requested_device(["device=cpu", "device=cuda"]) == "cuda"
