"""The cold start: rows as training sequences, and two real steps of verl's SFT trainer on two ranks."""

import json
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


@pytest.mark.train
def test_two_steps_on_two_ranks(shapes, tiny_model, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "recipe.paravt.training.sft", "device=cpu", f"model.path={tiny_model}", f"output_dir={tmp_path}"]
    command += [f"data.train_files={shapes / 'sft-00000.parquet'}", f"data.video_root={shapes}", "data.max_length=4096"]
    command += ["data.train_batch_size=4", "data.micro_batch_size_per_gpu=2", "trainer.total_training_steps=2"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")
    assert result.returncode == 0, result.stderr[-4000:]
    assert "[paravt] step 2/2  loss " in result.stdout and "train/loss" in (tmp_path / "log.txt").read_text()
    assert len((result.stdout + result.stderr).splitlines()) < 30 and list(tmp_path.glob("tensorboard/**/events*"))
    folder = tmp_path / "checkpoints" / "global_step_2" / "huggingface"
    before, after = (load_file(path / "model.safetensors") for path in (tiny_model, folder))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any("visual" in name for name in moved)
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float32" and "freeze_vision_tower" not in config
