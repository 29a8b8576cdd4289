"""The real command, two steps: verl's V1 trainer, FSDP, a vLLM server, Ray, decord, TensorBoard, on video files."""

import subprocess

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

pytestmark = pytest.mark.train

STEP_METRICS = (
    "format_reward format_reward_reference format_base tool_calls_per_rollout executed_calls_per_rollout "
    "malformed_rollouts accuracy overview_frames failed_sessions"
)


@pytest.fixture(scope="module")
def run(training_command, run_files, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("run")
    overrides = ["trainer.total_training_steps=2", "trainer.save_freq=2", "trainer.test_freq=2"]
    log = output_dir / "console.txt"
    with log.open("w") as file:
        command = training_command(output_dir, *overrides)
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=540, cwd="/").returncode
    assert code == 0, log.read_text()[-6000:]
    return run_files(output_dir)


def test_the_metrics_of_every_step_are_there(run):
    assert [line["step"] for line in run.metrics] == [1, 2]
    for line in run.metrics:
        assert {f"paravt/{name}" for name in STEP_METRICS.split()} <= line.keys()
        assert {"paravt/K=4/accuracy", "paravt/K=8/accuracy"} & line.keys()
        assert line["paravt/failed_sessions"] == 0
    assert "paravt/val/synthetic/accuracy" in run.metrics[1] and "val-core/synthetic/acc/mean@1" in run.metrics[1]


def test_vllm_and_the_trainer_agree_on_the_probabilities(run):
    for line in run.metrics:
        assert line["training/rollout_probs_diff_max"] > 0
        assert line["training/rollout_probs_diff_mean"] < 1e-2


def test_every_rollout_is_readable(run):
    for step in (1, 2):
        rollouts = run.rollouts(step)
        assert len(rollouts) == 24
        groups = {}
        for rollout in rollouts:
            groups.setdefault(rollout["group"], []).append(rollout)
            assert rollout["overview_frames"] == rollout["frame_budget"] in (4, 8)
            assert rollout["turns"][0]["text"].startswith("<think>\n")
        assert len(groups) == 12
        for members in groups.values():
            assert len({(m["question_id"], m["frame_budget"], m["num_prompt_tokens"]) for m in members}) == 1


def test_the_real_clip_was_trained_on(run):
    assert any(rollout["video"] == "real.mp4" for step in (1, 2) for rollout in run.rollouts(step))


def test_the_weights_load_in_the_precision_trained_in_and_have_moved(run, tiny_model):
    folder = run.folder / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    model = AutoModelForImageTextToText.from_pretrained(folder)
    AutoProcessor.from_pretrained(folder)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    before, after = (load_file(path / "model.safetensors") for path in (tiny_model, folder))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any("visual" in name for name in moved), "only the language model is trained"
    assert "freeze_vision_tower" not in (folder / "config.json").read_text()


def test_tensorboard_has_the_events_and_log_and_console_the_table(run):
    assert list((run.folder / "tensorboard").rglob("events.out.tfevents.*"))
    for name in ("console.txt", "log.txt"):
        text = (run.folder / name).read_text()
        assert "format reward f_τ" in text and "steps 1 to 2, 0 failed sessions" in text


def test_the_console_shows_the_steps_and_little_else(run):
    console = (run.folder / "console.txt").read_text().splitlines()
    for line in run.metrics:
        [shown] = [text for text in console if text.startswith(f"[paravt] step {line['step']}/2  ")]
        assert f"reward {line['critic/score/mean']:.3f}" in shown and " left" in shown
    assert any(text.startswith("[paravt] step 2 validated  accuracy ") for text in console)
    log = (run.folder / "log.txt").read_text().splitlines()
    assert len(console) < 80 < len(log)
    assert len(console) == len(set(console)), "no line is shown twice"


def test_an_error_stands_on_the_console_and_in_the_log(training_command, tmp_path):
    # What verl itself refuses is known once the console has begun.
    command = training_command(tmp_path, "actor_rollout_ref.actor.ppo_mini_batch_size=100")
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")
    assert result.returncode == 1
    last = result.stderr.splitlines()[-2:]
    assert last[0].startswith("error: ") and "ppo_mini_batch_size" in last[0]
    assert last[1] == f"all that was printed is in {tmp_path / 'log.txt'}"
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" in log and log.splitlines()[-2:] == last


def test_no_process_is_left(run):
    assert run.processes() == []
