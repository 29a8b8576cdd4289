"""SIGTERM at the driver: a checkpoint and an end after the current step; in between, at once."""

import os
import signal
import subprocess
import sys

import pytest

DRIVER = """
import sys, time
import ray
from recipe.paravt.lifecycle import progress
from recipe.paravt.lifecycle.progress import Progress
from recipe.paravt.lifecycle.stop import StoppableRunner
ray.init(address="local", num_cpus=1, include_dashboard=False)
if sys.argv[1] != "0":
    progress.report(Progress(int(sys.argv[1]), "generating"))
runner = StoppableRunner()
runner.handle_sigterm()
print("ready", flush=True)
@ray.remote
def wait(step):
    while not step or not progress.stop_requested():
        time.sleep(0.1)
try:
    ray.get(wait.remote(int(sys.argv[1])))
    print("asked", progress.current(), runner.stop_asked, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(runner.exit_code if runner.ends_now else 1)
"""


@pytest.fixture
def driver():
    started = []

    def start(step):
        environment = os.environ | {"PARAVT_RUN_ID": "0123456789ab"}
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(step)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_in_a_step_the_trainer_is_asked_and_a_second_one_ends_at_once(driver):
    process = driver(step=7)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "asked while generating, step 7 True\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "a checkpoint will be saved when step 7 ends" in errors and "ending now" in errors


def test_before_the_first_step_it_ends_at_once(driver):
    process = driver(step=0)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM and "ending now" in errors
