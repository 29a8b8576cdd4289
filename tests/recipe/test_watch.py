"""The watch on processes of its own, and (long) on a real run whose processes are killed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

LIMIT_SECONDS = 300

DRIVER = """
import subprocess, sys, time
from recipe.paravt.watch import ProcessWatch, WatchSettings
child = subprocess.Popen(["bash", "-c", "exec -a VLLM::EngineCore sleep 100"])
other = subprocess.Popen(["sleep", "100"])
settings = WatchSettings(poll_seconds=0.2, grace_seconds=0.5, stopped_seconds=1.0)
with ProcessWatch(lambda: "how to go on", settings):
    print(child.pid, other.pid, flush=True)
    time.sleep(100)  # a hang
"""


@pytest.fixture
def hanging_driver():
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )
    needed, other = map(int, process.stdout.readline().split())
    yield process, needed, other
    process.kill()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_hanging_driver_ends_and_says_what_died(hanging_driver, sent):
    process, needed, other = hanging_driver
    time.sleep(1.0)
    os.kill(needed, sent)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    what = "is gone" if sent == signal.SIGKILL else "was stopped"
    assert f"(process {needed}) {what}" in errors and "how to go on" in errors
    assert not psutil.pid_exists(other) or psutil.Process(other).status() == psutil.STATUS_ZOMBIE


def test_a_process_that_is_not_needed_may_end(hanging_driver):
    process, _, other = hanging_driver
    time.sleep(1.0)
    os.kill(other, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)


@pytest.mark.train
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("ray::AgentLoopWorker", signal.SIGKILL),
        ("VLLM::EngineCore", signal.SIGKILL),
        ("ray::WorkerDict", signal.SIGKILL),
        ("ray::AgentLoopWorker", signal.SIGSTOP),
    ],
)
def test_a_run_whose_process_dies_ends_and_leaves_nothing(name, sent, training_command, run_files, tmp_path):
    run = run_files(tmp_path)
    command = training_command(tmp_path, "trainer.total_training_steps=200", "trainer.save_freq=1")
    with (tmp_path / "log.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd="/")
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (tmp_path / "metrics.jsonl").exists() or not run.metrics:
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log.txt").read_text()[-3000:]
            time.sleep(0.2)
        children = psutil.Process(process.pid).children(recursive=True)
        (victim, *_) = [child for child in children if " ".join(child.cmdline()).startswith(name)]
        victim.send_signal(sent)
        started = time.monotonic()
        assert process.wait(timeout=120) != 0
    text = (tmp_path / "log.txt").read_text()
    assert "the last checkpoint is global_step_" in text and "recipe.paravt.main" in text
    assert str(victim.pid) in text[text.rindex("error: ") :]
    gone = time.monotonic() + 60
    while [child for child in children if child.is_running()] and time.monotonic() < gone:
        time.sleep(0.5)
    left = [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert left == [], f"after {time.monotonic() - started:.0f} s"
