"""The cold start: rows as training sequences, and two real steps of verl's SFT trainer on two ranks."""

import json
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file
from verl.utils import hf_processor, hf_tokenizer

from recipe.paravt.training.sft_dataset import ParaVTSFTDataset


@pytest.fixture(scope="module")
def dataset(shapes, tiny_model):
    limits = {"size": {"shortest_edge": 784, "longest_edge": 50_176}}
    config = OmegaConf.create({"video_root": str(shapes), "max_length": 4096, "mm_processor_kwargs": limits})
    model = str(tiny_model)
    return ParaVTSFTDataset(str(shapes / "sft-00000.parquet"), hf_tokenizer(model), config, hf_processor(model))


def test_exactly_the_assistants_turns_carry_loss(dataset, shapes):
    rows = pq.read_table(shapes / "sft-00000.parquet").to_pylist()
    index = next(i for i, row in enumerate(rows) if row["agent"] == "main" and len(row["messages"]) > 2)
    item = dataset[index]
    trained = dataset._tokenizer.decode(item["input_ids"][item["loss_mask"].bool()])
    turns = [message["content"] for message in rows[index]["messages"] if message["role"] == "assistant"]
    assert trained == "".join(turn + "<|im_end|>" for turn in turns)
    assert item["position_ids"].shape == (4, len(item["input_ids"]))
    frames = item["multi_modal_inputs"]["image_grid_thw"]
    assert len(frames) == rows[index]["videos"][0]["nframes"]


def test_a_row_past_the_limit_is_named(dataset):
    dataset._max_length, kept = 10, dataset._max_length
    try:
        with pytest.raises(ValueError, match=r"row 0 has \d+ tokens, data\.max_length is 10"):
            dataset[0]
    finally:
        dataset._max_length = kept


@pytest.fixture(scope="module")
def train(shapes, tiny_model):
    """Runs the cold start on two ranks."""

    def train(output_dir, *overrides):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "recipe.paravt.training.sft", "device=cpu", f"model.path={tiny_model}"]
        command += [f"data.train_files={shapes / 'sft-00000.parquet'}", f"data.video_root={shapes}"]
        command += [f"output_dir={output_dir}", "data.max_length=4096", "data.train_batch_size=4"]
        command += ["data.micro_batch_size_per_gpu=2", *overrides]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")

    return train


@pytest.mark.train
def test_two_steps_on_two_ranks(train, tiny_model, tmp_path):
    result = train(tmp_path, "trainer.total_training_steps=2")
    assert result.returncode == 0, result.stderr[-4000:]
    assert "[paravt] step 2/2  loss " in result.stdout and "train/loss" in (tmp_path / "log.txt").read_text()
    assert len((result.stdout + result.stderr).splitlines()) < 30 and list(tmp_path.glob("tensorboard/**/events*"))
    folder = tmp_path / "checkpoints" / "global_step_2" / "huggingface"
    before, after = (load_file(path / "model.safetensors") for path in (tiny_model, folder))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any("visual" in name for name in moved)
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float32" and "freeze_vision_tower" not in config


def test_what_cannot_be_trained_on_is_said_before_anything_starts(train, tmp_path):
    result = train(tmp_path, "data.train_max_samples=3")
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode != 0 and len(errors) == 1, result.stderr
    assert "of which data.train_max_samples uses 3, and one batch takes 4 (data.train_batch_size)" in errors[0]
    assert not (tmp_path / "log.txt").exists()


# Two steps an epoch. The rate does not depend on how long a run is meant to be.
EPOCHS = ["data.train_max_samples=8", "trainer.save_freq=1", "optim.lr_scheduler_type=constant", "optim.lr=1e-3"]
FOUR_STEPS = [*EPOCHS, "trainer.total_training_steps=4"]


@pytest.fixture(scope="module")
def uninterrupted(train, tmp_path_factory):
    """Folder of a run of four steps with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    result = train(folder, *FOUR_STEPS)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


@pytest.fixture
def interrupted(uninterrupted, tmp_path):
    """Makes the folder that the run would have left, had it been interrupted after a step."""

    def interrupted(last_step):
        for step in range(1, last_step + 1):
            name = f"checkpoints/global_step_{step}"
            shutil.copytree(uninterrupted / name, tmp_path / name)
        return tmp_path

    return interrupted


def weights(folder, step=4):
    return load_file(folder / "checkpoints" / f"global_step_{step}" / "huggingface" / "model.safetensors")


def steps_kept(folder):
    return sorted(path.name for path in (folder / "checkpoints").glob("global_step_*"))


def assert_same_end(folder, uninterrupted):
    found, expected = weights(folder), weights(uninterrupted)
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)
    before = weights(uninterrupted, 3)
    assert not all(torch.allclose(before[name], expected[name], atol=1e-6) for name in expected)


@pytest.mark.train
def test_resumed_at_the_end_of_an_epoch_it_is_the_run_that_was_never_interrupted(train, interrupted, uninterrupted):
    folder = interrupted(3)
    (folder / "checkpoints" / "global_step_3" / "complete.json").unlink()
    result = train(folder, *FOUR_STEPS, "trainer.max_ckpt_to_keep=1")
    assert result.returncode == 0, result.stderr[-3000:]
    half, whole = (folder / "checkpoints" / f"global_step_{step}" for step in (3, 2))
    assert f"[paravt] ignoring the checkpoint {half}: the run ended while it was written" in result.stderr
    assert f"[paravt] going on from {whole}" in result.stderr
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == [f"[paravt] step {n}/4" for n in (3, 4)]
    assert_same_end(folder, uninterrupted)
    assert steps_kept(folder) == ["global_step_4"], "those of the run before count too"


@pytest.mark.train
@pytest.mark.long
def test_resumed_within_an_epoch_from_a_path_it_is_too(train, interrupted, uninterrupted):
    folder = interrupted(2)
    path = folder / "checkpoints" / "global_step_1"
    options = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={path}", "trainer.max_ckpt_to_keep=2"]
    result = train(folder, *FOUR_STEPS, *options)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.startswith("[paravt] step 2/4  loss ")
    assert_same_end(folder, uninterrupted)
    assert steps_kept(folder) == ["global_step_3", "global_step_4"]


@pytest.mark.train
@pytest.mark.long
def test_a_run_that_is_done_makes_no_further_step(train, interrupted):
    folder = interrupted(2)
    result = train(folder, *EPOCHS, "trainer.total_training_steps=2")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "[paravt] step 2 is done; trainer.total_training_steps is the end" in result.stderr
    assert steps_kept(folder) == ["global_step_1", "global_step_2"]
