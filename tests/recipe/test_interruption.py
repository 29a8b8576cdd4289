"""A run that is interrupted and goes on is the run that was never interrupted."""

import functools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.train]

STEPS = 4
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


def wait_until_gone(run):
    deadline = time.monotonic() + 60
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert run.processes() == []


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_metrics(found, expected):
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert set(ours) == set(theirs)
        for name, value in theirs.items():
            if value is None or any(part in name for part in NOT_COMPARED):
                continue
            assert math.isclose(ours[name], value, rel_tol=CLOSE, abs_tol=CLOSE), (
                ours["step"],
                name,
                ours[name],
                value,
            )


@pytest.fixture(scope="module")
def command_of(training_command):
    def command(folder, num_steps=STEPS):
        shared = ["trainer.save_freq=1", f"trainer.total_training_steps={num_steps}", "paravt.sampling_seed=3"]
        return training_command(folder, *shared)

    return command


@pytest.fixture(scope="module")
def undisturbed(command_of, tmp_path_factory):
    """The metrics of a run of so many steps that nobody interrupts."""

    @functools.cache
    def run(num_steps=STEPS):
        folder = tmp_path_factory.mktemp("undisturbed")
        finish(command_of(folder, num_steps), folder / "console.txt")
        return metrics(folder)

    return run


@pytest.mark.parametrize(
    ("num_steps", "signals"),
    [
        pytest.param(STEPS, [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], id="three", marks=pytest.mark.long),
        pytest.param(20, 4 * [signal.SIGKILL] + 3 * [signal.SIGTERM, signal.SIGINT], id="ten", marks=pytest.mark.kills),
    ],
)
def test_interruptions_do_not_change_a_run(num_steps, signals, command_of, run_files, undisturbed, tmp_path):
    draw = random.Random(0)
    run, lines = run_files(tmp_path), tmp_path / "metrics.jsonl"
    for number, sent in enumerate(signals):
        log = tmp_path / f"{number}.txt"
        process = start(command_of(tmp_path, num_steps), log)
        deadline = time.monotonic() + LIMIT_SECONDS
        while " begins, " not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        # A step takes some four seconds, the first one after a start some twenty.
        time.sleep(draw.uniform(0.0, 25.0))
        process.send_signal(sent)
        code = process.wait(timeout=180)
        print(f"{sent.name}: exit {code}, {num_lines(lines)} steps in metrics.jsonl")
        assert code == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143}.get(sent, code) != 0, log.read_text()
        wait_until_gone(run)
    finish(command_of(tmp_path, num_steps), tmp_path / "last.txt")
    assert_same_metrics(metrics(tmp_path), undisturbed(num_steps))
    names = {path.name for path in (tmp_path / "rollouts").iterdir()}
    assert names == {f"{step}.jsonl" for step in range(1, num_steps + 1)}


@pytest.mark.long
def test_half_a_checkpoint_is_named_and_ignored(command_of, run_files, undisturbed, tmp_path):
    process = start(command_of(tmp_path), tmp_path / "first.txt")
    wait_for_lines(process, tmp_path / "metrics.jsonl", 3, tmp_path / "first.txt")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until_gone(run_files(tmp_path))
    checkpoints = sorted(tmp_path.glob("checkpoints/global_step_*/complete.json"))
    checkpoints[-1].unlink()
    finish(command_of(tmp_path), tmp_path / "second.txt")
    text = (tmp_path / "second.txt").read_text()
    assert f"ignoring the checkpoint {checkpoints[-1].parent}: the run ended while it was written" in text
    assert f"going on from {checkpoints[-2].parent}" in text
    assert_same_metrics(metrics(tmp_path), undisturbed())


@pytest.fixture
def somebody_elses_cluster(tmp_path_factory):
    """A Ray cluster that was there before, as ``ray start`` makes it."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: Ray's sockets are in it
    ray = Path(sys.executable).with_name("ray")
    options = ["--num-cpus=1", "--include-dashboard=false", "--port=0", f"--temp-dir={folder}", "--disable-usage-stats"]
    cluster = subprocess.Popen([ray, "start", "--head", "--block", *options], start_new_session=True)
    deadline = time.monotonic() + 60
    while not (daemons := ray_daemons(cluster)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert daemons
    yield lambda: ray_daemons(cluster) == daemons
    for process in [*psutil.Process(cluster.pid).children(recursive=True), cluster]:
        process.kill()
    cluster.wait()
    shutil.rmtree(folder)


def ray_daemons(cluster):
    """Pids, once both are there."""
    names = {child.pid: child.name() for child in psutil.Process(cluster.pid).children(recursive=True)}
    pids = {pid for pid, name in names.items() if name in ("raylet", "gcs_server")}
    return pids if len(pids) == 2 else set()


@pytest.mark.long
def test_two_runs_at_once_beside_a_cluster_are_two_runs(somebody_elses_cluster, command_of, undisturbed, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    processes = [start(command_of(folder), folder / "console.txt") for folder in folders]
    for process, folder in zip(processes, folders, strict=True):
        assert process.wait(timeout=2 * LIMIT_SECONDS) == 0, (folder / "console.txt").read_text()[-3000:]
        assert_same_metrics(metrics(folder), undisturbed())
    assert somebody_elses_cluster(), "the other cluster's daemons live"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, and how to make it larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=44m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder, lambda: subprocess.run(["mount", "-o", "remount,size=400m", folder], check=True)
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.long
def test_a_disk_that_fills_up_ends_the_run_and_costs_no_step(small_disk, command_of, undisturbed, tmp_path):
    folder, enlarge = small_disk
    log = tmp_path / "console.txt"
    assert start(command_of(folder), log).wait(timeout=LIMIT_SECONDS) not in (0, None)
    error = log.read_text()
    error = error[error.rindex("error: ") :]
    assert f"the last checkpoint is {folder / 'checkpoints' / 'global_step_'}" in error, error
    assert "the disk is full" in error
    enlarge()
    finish(command_of(folder), tmp_path / "second.txt")
    assert "ignoring the checkpoint" in (tmp_path / "second.txt").read_text()
    assert_same_metrics(metrics(folder), undisturbed())
