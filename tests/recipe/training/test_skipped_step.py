"""A real step all of whose rollouts fail, in a run that is told to bear it."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.train


def test_a_step_of_which_nothing_is_left_is_skipped_and_counted(training_command, run_files, rows, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(rows, broken)
    for video in broken.rglob("*.mp4"):
        video.write_bytes(b"no video")
    options = ["paravt.limits.max_failed_share=1.0", "trainer.total_training_steps=1", "trainer.save_freq=1"]
    command = training_command(tmp_path, *options, f"paravt.video_root={broken}")
    with (tmp_path / "console.txt").open("w+") as console:
        code = subprocess.run(command, stdout=console, stderr=subprocess.STDOUT, timeout=540, cwd="/").returncode
        console.seek(0)
        text = console.read()
    assert code == 0, text[-3000:]
    run = run_files(tmp_path)
    [line] = run.metrics
    assert line["paravt/skipped_steps"] == 1 and line["paravt/failed_sessions"] == line["paravt/failures/video"] == 24
    assert "[paravt] step 1/1  skipped: all of its rollouts failed" in text
    assert [rollout["failure"] for rollout in run.rollouts(1)] == ["video"] * 24
    assert (tmp_path / "checkpoints" / "global_step_1" / "complete.json").exists(), "the run goes on, and is saved"
