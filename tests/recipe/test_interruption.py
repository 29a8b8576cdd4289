"""Ctrl-C, and the same command again."""

import os
import signal
import subprocess
import time

import pytest

pytestmark = [pytest.mark.train, pytest.mark.long]

LIMIT_SECONDS = 400


def test_an_interrupted_run_ends_clean_and_goes_on(training_command, run_files, tmp_path):
    run = run_files(tmp_path)
    command = training_command(tmp_path, "trainer.total_training_steps=4", "trainer.save_freq=1")

    def start(name):
        # A shell without job control ignores SIGINT for what it starts in the background; a terminal does not.
        restore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
        file = (tmp_path / name).open("w")
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd="/", **restore)

    process = start("first.txt")
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (tmp_path / "metrics.jsonl").exists() or len(run.metrics) < 2:
        assert process.poll() is None, (tmp_path / "first.txt").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) != 0
    deadline = time.monotonic() + 30
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert run.processes() == []
    before = run.metrics

    assert start("second.txt").wait(timeout=LIMIT_SECONDS) == 0, (tmp_path / "second.txt").read_text()[-3000:]
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4]
    assert run.metrics[0] == before[0]
    assert "setting global step to" in (tmp_path / "second.txt").read_text()
    assert {path.name for path in (tmp_path / "rollouts").iterdir()} == {f"{step}.jsonl" for step in (1, 2, 3, 4)}
