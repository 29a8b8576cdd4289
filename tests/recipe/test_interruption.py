"""A run that is interrupted and goes on is the run that was never interrupted."""

import json
import math
import os
import random
import signal
import subprocess
import time

import pytest

pytestmark = [pytest.mark.train, pytest.mark.long]

LIMIT_SECONDS = 600
CLOSE = 1e-4
# What a clock says, and how much memory there is, is not the same twice.
NOT_COMPARED = ("timing", "perf/")


def start(command, log):
    # A shell without job control ignores SIGINT for what it starts in the background; a terminal does not.
    restore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    return subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT, cwd="/", **restore)


def finish(command, log):
    assert start(command, log).wait(timeout=LIMIT_SECONDS) == 0, log.read_text()[-3000:]


def num_lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for_lines(process, path, number, log):
    deadline = time.monotonic() + LIMIT_SECONDS
    while num_lines(path) < number:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_metrics(found, expected):
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert set(ours) == set(theirs)
        for name, value in theirs.items():
            if value is None or name.startswith(NOT_COMPARED):
                continue
            assert math.isclose(ours[name], value, rel_tol=CLOSE, abs_tol=CLOSE), (
                ours["step"],
                name,
                ours[name],
                value,
            )


@pytest.fixture(scope="module")
def steps(request):
    return 4


@pytest.fixture(scope="module")
def command_of(training_command, steps):
    def command(folder, *overrides):
        shared = ["trainer.save_freq=1", f"trainer.total_training_steps={steps}", "paravt.sampling_seed=3"]
        return training_command(folder, *shared, *overrides)

    return command


@pytest.fixture(scope="module")
def undisturbed(command_of, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(command_of(folder), folder / "log.txt")
    return metrics(folder)


def test_interruptions_do_not_change_a_run(command_of, run_files, undisturbed, tmp_path):
    """Killed at a random moment, terminated, interrupted: four starts make the four steps of one."""
    draw = random.Random(0)
    run, lines = run_files(tmp_path), tmp_path / "metrics.jsonl"
    for number, sent in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)):
        log = tmp_path / f"{number}.txt"
        before = num_lines(lines)
        process = start(command_of(tmp_path), log)
        wait_for_lines(process, lines, max(1, before), log)
        while "Training Progress" not in log.read_text():
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 3.0))
        process.send_signal(sent)
        code = process.wait(timeout=120)
        assert code == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 1}.get(sent), (
            log.read_text()
        )
        deadline = time.monotonic() + 60
        while run.processes() and time.monotonic() < deadline:
            time.sleep(0.5)
        assert run.processes() == []
        if sent == signal.SIGTERM:
            text = log.read_text()
            assert "a checkpoint will be saved when step" in text and "stopped on SIGTERM" in text
    finish(command_of(tmp_path), tmp_path / "last.txt")
    assert_same_metrics(metrics(tmp_path), undisturbed)
    assert {path.name for path in (tmp_path / "rollouts").iterdir()} == {f"{step}.jsonl" for step in (1, 2, 3, 4)}


def test_half_a_checkpoint_is_named_and_ignored(command_of, undisturbed, tmp_path):
    process = start(command_of(tmp_path), tmp_path / "first.txt")
    wait_for_lines(process, tmp_path / "metrics.jsonl", 3, tmp_path / "first.txt")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    checkpoints = sorted(tmp_path.glob("checkpoints/global_step_*/complete.json"))
    checkpoints[-1].unlink()
    finish(command_of(tmp_path), tmp_path / "second.txt")
    text = (tmp_path / "second.txt").read_text()
    assert f"ignoring the checkpoint {checkpoints[-1].parent}: the run ended while it was written" in text
    assert f"going on from {checkpoints[-2].parent}" in text
    assert_same_metrics(metrics(tmp_path), undisturbed)


def test_two_runs_at_once_are_two_runs(command_of, undisturbed, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    processes = [start(command_of(folder), folder / "log.txt") for folder in folders]
    for process, folder in zip(processes, folders, strict=True):
        assert process.wait(timeout=2 * LIMIT_SECONDS) == 0, (folder / "log.txt").read_text()[-3000:]
        assert_same_metrics(metrics(folder), undisturbed)
