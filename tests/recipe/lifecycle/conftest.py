"""A run in small: a driver with a real guard and a real watch, and processes that stand for Ray's and vLLM's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from recipe.paravt.lifecycle.leftovers import SHARED_MEMORY, new_run_id, of_run, shared_memory_prefix
from recipe.paravt.lifecycle.run_marker import RUN_VARIABLE

# Its process `VLLM::EngineCore` is a needed one, `sleep` is not.
DRIVER = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
from recipe.paravt.lifecycle import leftovers
from recipe.paravt.lifecycle.guard import Guard
from recipe.paravt.lifecycle.watch import ProcessWatch, WatchSettings
from recipe.paravt.lifecycle.run_files import lock_folder
from recipe.paravt.lifecycle.run_marker import run_id
output_dir, ending = sys.argv[1:]
os.environ.update(leftovers.environment(run_id()))
lock = lock_folder(Path(output_dir))
guard = Guard(output_dir, output_dir + "/checkpoints", lock)
needed = subprocess.Popen(["bash", "-c", "exec -a VLLM::EngineCore sleep 100"])
other = subprocess.Popen(["sleep", "100"], start_new_session=True)
settings = WatchSettings(poll_seconds=0.2, grace_seconds=0.5, stopped_seconds=1.0)
report = lambda message: print(f"error: {message}", file=sys.stderr, flush=True)
watch = ProcessWatch(lambda: "how to go on", guard, settings, report=report)
with watch:
    print(needed.pid, other.pid, guard.pid, flush=True)
    if ending == "hang":
        time.sleep(100)
guard.close(failed=ending == "failed")
print("closed", flush=True)
"""


class SmallRun:
    """A driver process and what belongs to it."""

    def __init__(self, output_dir, ending):
        output_dir.mkdir(exist_ok=True)
        self.run_id = new_run_id()
        self.driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, output_dir, ending],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env=os.environ | {RUN_VARIABLE: self.run_id},
        )
        self.needed, self.other, self.guard = map(int, self.driver.stdout.readline().split())
        self.folder = Path("/tmp", f"paravt-{self.run_id}")
        logs = self.folder / "ray" / "session_x" / "logs"
        logs.mkdir(parents=True)
        (logs / "raylet.out").write_text("last words")
        (SHARED_MEMORY / f"{shared_memory_prefix(self.run_id)}abcd").write_bytes(b"x")
        Path("/tmp", f"rl-colocate-zmq-{self.run_id}-replica-0.sock").touch()

    def left(self):
        """What is there of the run: paths, and pids of its processes other than the driver."""
        alive = [pid for pid in (self.needed, self.other, self.guard) if is_alive(pid)]
        return alive + of_run(self.run_id, self.folder)

    def wait_until_clean(self, seconds):
        deadline = time.monotonic() + seconds
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.left()

    def end(self):
        for pid in (self.needed, self.other, self.driver.pid):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        if is_alive(self.guard):
            os.kill(self.guard, signal.SIGCONT)
        self.driver.communicate()
        assert self.wait_until_clean(30) == []


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def small_run(tmp_path):
    """Starts small runs, and ends them."""
    runs = []

    def start(ending="hang", name="run"):
        runs.append(SmallRun(tmp_path / name, ending))
        return runs[-1]

    yield start
    for run in runs:
        run.end()
