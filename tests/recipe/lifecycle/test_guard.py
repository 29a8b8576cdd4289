"""The guard leaves nothing of a run, however the run ended, and touches nobody else's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from recipe.paravt.lifecycle.leftovers import folder_of, new_run_id, of_run


@pytest.mark.parametrize("ending", ["well", "failed"])
def test_what_is_left_is_gone_when_close_returns(small_run, tmp_path, ending):
    run = small_run(ending)
    output, errors = run.driver.communicate(timeout=60)
    assert (output, errors, run.driver.returncode) == ("closed\n", "", 0)
    assert run.left() == []
    logs = tmp_path / "run" / "ray_logs" / run.run_id
    assert logs.exists() == (ending == "failed"), "Ray's logs are kept of a run that failed"
    if ending == "failed":
        assert (logs / "raylet.out").read_text() == "last words"


def test_a_killed_driver_leaves_nothing_and_is_named(small_run):
    run = small_run()
    os.kill(run.driver.pid, signal.SIGKILL)
    # Also a process in another session, whose parent is gone.
    assert run.wait_until_clean(30) == []
    _, errors = run.driver.communicate()
    assert f"the driver (process {run.driver.pid}) " in errors and "no step was finished" in errors
    assert "-c" in errors, "the command that goes on from there"


def test_the_output_folder_is_free_only_when_all_is_gone(small_run, tmp_path):
    first = small_run()
    os.kill(first.driver.pid, signal.SIGKILL)
    second = small_run()  # waits for the folder
    assert first.left() == [] and is_alive_with(second)


def is_alive_with(run):
    return all(psutil.pid_exists(pid) for pid in (run.needed, run.other, run.guard))


def test_two_runs_do_not_meet(small_run):
    first, second = small_run(name="first"), small_run(name="second")
    os.kill(first.driver.pid, signal.SIGKILL)
    assert first.wait_until_clean(30) == []
    assert is_alive_with(second) and len(of_run(second.run_id, second.folder)) == 3


def test_a_run_that_lost_its_guard_too_is_cleaned_up_by_the_next(small_run):
    dead = small_run(name="dead")
    for pid in (dead.guard, dead.driver.pid):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    assert dead.left()
    small_run(name="next")
    assert dead.wait_until_clean(30) == []


def test_a_machine_without_the_driver_gets_one_guard(tmp_path):
    """Two processes of a run on another machine: one guard, which cleans up when both have ended."""
    run_id = new_run_id()
    folder = Path("/tmp", f"paravt-{run_id}")
    code = "from recipe.paravt.lifecycle.guard import guard_this_machine as start; start(); start(); input()"
    environment = os.environ | {"PARAVT_RUN_ID": run_id, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", code]
    workers = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, cwd="/") for _ in range(2)]

    def guards():
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if "recipe.paravt.lifecycle.guard" in (process.info["cmdline"] or [])
            and process.environ().get("PARAVT_RUN_ID") == run_id
        ]

    deadline = time.monotonic() + 20
    while not (folder / "owner.lock").exists() or not guards():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.0)
    assert len(guards()) == 1
    workers[0].communicate(b"\n", timeout=20)
    time.sleep(8.0)  # longer than the guard waits for processes to come
    assert len(guards()) == 1 and folder.exists()
    workers[1].communicate(b"\n", timeout=20)
    deadline = time.monotonic() + 30
    while (guards() or folder.exists()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not guards() and not folder.exists()


def test_the_guard_is_not_started_by_hand():
    process = subprocess.run([sys.executable, "-m", "recipe.paravt.lifecycle.guard"], capture_output=True, text=True)
    assert process.returncode == 2 and "recipe.paravt.main starts it" in process.stderr


def test_a_process_without_a_run_has_no_folder(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/tmp/paravt-abc")
    assert folder_of("abc") == Path("/tmp/paravt-abc")
    assert folder_of("abd") is None
    monkeypatch.delenv("TMPDIR")
    assert folder_of("") is None
