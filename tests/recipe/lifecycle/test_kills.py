"""Whatever process of a real run is killed or stopped, and whenever: the run ends, says so, and leaves nothing.

The rows that are marked ``long`` run with ``tests/run.sh --all``; all of them, in about two hours, with

    pytest tests/recipe/lifecycle/test_kills.py -m kills -rA
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from recipe.paravt.lifecycle.leftovers import of_run
from recipe.paravt.lifecycle.processes import RunProcesses
from recipe.paravt.lifecycle.run_marker import RUN_VARIABLE

pytestmark = pytest.mark.train

START_SECONDS, END_SECONDS, CLEAN_SECONDS = 400, 120, 60
GENERATING, TRAINING, SENDING = "generating", "training", "sending weights to vLLM"
DRIVER = "recipe.paravt.main"
GUARD = "recipe.paravt.lifecycle.guard"
DELAY_SECONDS = {GENERATING: 0.3, TRAINING: 0.5, SENDING: 0.02}
# What the phase may matter to, and what it does not.
WORKING = ["ray::ParaVTAgentLoopWorker", "ray::CpuHttpServer", "VLLM::EngineCore", "VLLM::Worker", "ray::WorkerDict"]
SERVING = [
    ("ray::TaskRunnerV1", GENERATING),
    ("ray::TransferQueueController", GENERATING),
    ("ray::SimpleStorageUnit", TRAINING),
    ("ray::RewardLoopWorker", GENERATING),
    ("ray::GlobalRequestLoadBalancer", GENERATING),
    ("raylet", TRAINING),
    ("gcs_server", GENERATING),
    (DRIVER, TRAINING),
    (GUARD, GENERATING),
]
ROWS = [(name, phase, signal.SIGKILL) for name in WORKING for phase in (GENERATING, TRAINING, SENDING)]
ROWS += [(name, GENERATING, signal.SIGSTOP) for name in WORKING]
ROWS += [(name, phase, sent) for name, phase in SERVING for sent in (signal.SIGKILL, signal.SIGSTOP)]
LONG = [
    ("ray::ParaVTAgentLoopWorker", GENERATING, signal.SIGKILL),
    ("VLLM::EngineCore", SENDING, signal.SIGKILL),
    ("VLLM::Worker", GENERATING, signal.SIGSTOP),
    ("raylet", TRAINING, signal.SIGKILL),
    ("gcs_server", GENERATING, signal.SIGSTOP),
    (DRIVER, TRAINING, signal.SIGKILL),
]


# In a process of its own, with the raylet's environment: Ray's token for this cluster is in it.
SHOW_PROGRESS = """
import sys, time
from ray._raylet import GcsClient
gcs, last = GcsClient(address=sys.argv[1]), None
while True:
    now = gcs.internal_kv_get(sys.argv[2].encode(), None)
    if now != last:
        last = now
        print(now.decode(), flush=True)
    time.sleep(0.01)
"""


class LiveRun:
    """A run of the real command, its processes, and the phase it is in."""

    def __init__(self, command, log):
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd="/", start_new_session=True)
        self.run_id = None
        self.folder = None
        self.processes = None
        self._progress = None

    def started(self):
        """Looks for the run's mark and for Ray's address; false before they are there."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if child.name() != "raylet":
                    continue
                arguments = dict(word.split("=", 1) for word in child.cmdline() if "=" in word)
                environment = child.environ()
            except psutil.Error:
                continue
            if RUN_VARIABLE not in environment:
                continue  # forked off the driver, not yet the raylet
            self.run_id = environment[RUN_VARIABLE]
            self.folder = Path(environment["TMPDIR"])
            self.processes = RunProcesses(self.run_id)
            key = f"paravt/{self.run_id}/progress"
            command = [sys.executable, "-c", SHOW_PROGRESS, arguments["--gcs-address"], key]
            self._progress = subprocess.Popen(
                command, env=environment | {RUN_VARIABLE: ""}, stdout=subprocess.PIPE, text=True
            )
            return True
        return False

    def wait_for(self, step, phase):
        for line in self._progress.stdout:
            now = json.loads(line)
            if now[0] >= step and now[1] == phase:
                return
        raise AssertionError("the run ended too early")

    def find(self, name):
        if name == DRIVER:
            return psutil.Process(self.process.pid)
        (found, *_) = [known.process for known in self.processes.look() if known.name.startswith(name)]
        return found

    def left(self):
        return [*map(str, self.processes.look()), *map(str, of_run(self.run_id, self.folder))]


def wait_until(condition, seconds, run, log):
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def marks(row):
    name, phase, sent = row
    chosen = [pytest.mark.kills] + ([pytest.mark.long] if row in LONG else [])
    return pytest.param(*row, marks=chosen, id=f"{name}-{sent.name}-{phase.split()[0]}")


@pytest.mark.timeout(START_SECONDS + END_SECONDS + CLEAN_SECONDS + 60)
@pytest.mark.parametrize(("name", "phase", "sent"), map(marks, ROWS))
def test_the_run_ends_says_so_and_leaves_nothing(name, phase, sent, training_command, tmp_path):
    log = tmp_path / "console.txt"
    command = training_command(tmp_path, "trainer.total_training_steps=500", "trainer.save_freq=1")
    with log.open("w") as file:
        run = LiveRun(command, file)
    try:
        wait_until(run.started, START_SECONDS, run, log)
        wait_until((tmp_path / "checkpoints" / "global_step_1" / "complete.json").exists, START_SECONDS, run, log)
        assert run.folder in of_run(run.run_id, run.folder), "what is looked for at the end is there now"
        victim = run.find(name)
        run.wait_for(2, phase)
        time.sleep(DELAY_SECONDS[phase])
        victim.send_signal(sent)
        started = time.monotonic()
        code = run.process.wait(timeout=END_SECONDS)
        ended = time.monotonic() - started
        while run.left() and time.monotonic() - started < ended + CLEAN_SECONDS:
            time.sleep(0.5)
        clean = time.monotonic() - started - ended
        text = log.read_text()
        errors = [line for line in text[text.rindex("error: ") :].splitlines() if line] if "error: " in text else [""]
        left = run.left()
        print(f"ROW | {name} | {sent.name} | {phase} | {code} | {ended:.0f} s | +{clean:.0f} s | {errors[0]} | {left}")
        assert code != 0
        assert f"process {victim.pid}" in errors[0]
        assert any("the last checkpoint is" in line and "global_step_" in line for line in errors)
        assert any("recipe.paravt.main" in line for line in errors[1:])
        assert left == []
    finally:
        if run._progress:
            run._progress.kill()
        for pid in [run.process.pid, *(known.process.pid for known in (run.processes.look() if run.processes else []))]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
