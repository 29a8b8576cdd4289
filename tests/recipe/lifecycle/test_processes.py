"""Which processes belong to a run, and how they ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recipe.paravt.lifecycle.processes import RunProcesses, describe_exit, exit_code
from recipe.paravt.lifecycle.run_marker import RUN_VARIABLE

RUN = f"run-of-{os.getpid()}"  # test processes beside this one have their own
MARKED = os.environ | {RUN_VARIABLE: RUN}


@pytest.fixture
def start():
    started = []

    def start(*command, env=MARKED):
        started.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def sleeper(name):
    return "bash", "-c", f"exec -a {name} sleep 100"


def wait_for_names(processes, names):
    deadline = time.monotonic() + 10
    while sorted(known.name for known in processes.look()) != sorted(names):
        assert time.monotonic() < deadline, processes.look()
        time.sleep(0.05)


def test_a_process_belongs_to_the_run_whose_mark_it_carries(start):
    start(*sleeper("ray::Actor.method"))
    start(*sleeper("/opt/bin/raylet"))
    start(sys.executable, "-m", "timeit", "-n", "1", "import time; time.sleep(60)")
    start(*sleeper("other"), env=MARKED | {RUN_VARIABLE: RUN + "2"})
    start(*sleeper("none"), env=os.environ)
    wait_for_names(RunProcesses(RUN), ["ray::Actor", "raylet", "timeit"])


def test_a_process_that_has_lost_its_environment_is_known_by_its_parent(start):
    start("bash", "-c", "env -i sleep 100 & exec -a raylet bash -c 'sleep 90; true'")
    processes = RunProcesses(RUN)
    wait_for_names(processes, ["raylet", "sleep", "sleep"])
    processes.kill(resource_trackers=True)
    wait_for_names(processes, [])


def test_an_orphan_still_belongs_to_its_run(start):
    parent = start("bash", "-c", "sleep 100 & exec sleep 100")
    processes = RunProcesses(RUN)
    wait_for_names(processes, ["sleep", "sleep"])
    parent.kill()
    parent.wait()
    (orphan,) = processes.look()
    orphan.kill()


@pytest.mark.parametrize(("name", "is_needed"), [("VLLM::Worker", True), ("gcs_server", True), ("ray::Actor", False)])
def test_a_needed_process_that_is_gone_is_trouble(start, name, is_needed):
    process = start(*sleeper(name))
    processes = RunProcesses(RUN)
    wait_for_names(processes, [name])
    assert processes.trouble(1.0) is None
    process.kill()
    wait_for_names(processes, [])
    trouble = processes.trouble(1.0)
    assert (trouble is not None) == is_needed
    if trouble:
        assert trouble.startswith(f"{name} (process {process.pid}) ")


def test_a_pid_can_be_needed_whatever_its_name(start):
    process = start(*sleeper("anything"))
    processes = RunProcesses(RUN, needed=[process.pid])
    wait_for_names(processes, ["anything"])
    process.kill()
    process.wait()
    processes.look()
    assert f"anything (process {process.pid})" in processes.trouble(1.0)


def test_stopped_time_is_counted_in_looks(start):
    process = start(*sleeper("ray::Actor"))
    processes = RunProcesses(RUN)
    wait_for_names(processes, ["ray::Actor"])
    process.send_signal(signal.SIGSTOP)
    for _ in range(2):
        time.sleep(0.1)
        processes.look(elapsed_seconds=10)
    assert processes.trouble(stopped_seconds=25) is None and processes.has_stopped()
    processes.look(elapsed_seconds=10)
    assert "was stopped and does not answer" in processes.trouble(stopped_seconds=25)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.1)
    processes.look(elapsed_seconds=10)
    assert processes.trouble(stopped_seconds=25) is None and not processes.has_stopped()


def test_resource_trackers_are_killed_last(start):
    tracker = start(sys.executable, "-c", "input()  # multiprocessing.resource_tracker")
    worker = start(*sleeper("worker"))
    processes = RunProcesses(RUN)
    wait_for_names(processes, [Path(sys.executable).name, "worker"])
    processes.kill(resource_trackers=False)
    assert worker.wait(timeout=5) == -signal.SIGKILL and tracker.poll() is None
    processes.kill(resource_trackers=True)
    assert tracker.wait(timeout=5) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "code"), [("kill -9 $$", -9), ("kill -SEGV $$", -11), ("exit 3", 3), ("exit 0", 0)]
)
def test_how_a_process_ended(start, command, code):
    process = start("bash", "-c", f"read; {command}")
    descriptor = os.pidfd_open(process.pid)
    assert exit_code(process.pid, descriptor) is None, "it lives"
    process.stdin.write(b"\n")
    process.stdin.flush()
    deadline = time.monotonic() + 10
    while exit_code(process.pid, None) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert exit_code(process.pid, None) == code, "nobody has waited for it yet"
    process.wait()
    if (known := exit_code(process.pid, descriptor)) is not None:  # Linux 6.15
        assert known == code
    os.close(descriptor)


def test_a_killed_process_is_told_from_one_that_ended(start):
    ended, killed = start("bash", "-c", "read; exit 4"), start("bash", "-c", "read; exit 4")
    processes = RunProcesses(RUN)
    wait_for_names(processes, ["bash", "bash"])
    ended.stdin.write(b"\n")
    ended.stdin.flush()
    killed.kill()
    deadline = time.monotonic() + 10
    while processes.look() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes.killed(ended.pid) is None
    assert processes.killed(killed.pid) == f"bash (process {killed.pid}) was killed by SIGKILL"


def test_exits_in_words():
    assert describe_exit(3) == "ended with exit status 3"
    assert describe_exit(-9) == "was killed by SIGKILL"
    assert describe_exit(-7).startswith("was killed by SIGBUS") and "/dev/shm" in describe_exit(-7)


def test_of_several_that_died_together_the_first_is_named(start):
    names = ["ray::Server", "VLLM::EngineCore", "VLLM::Worker"]
    started = []
    for name in names:
        started.append(start(*sleeper(name)))
        time.sleep(0.05)
    processes = RunProcesses(RUN)
    wait_for_names(processes, names)
    for process in started:
        process.kill()
    wait_for_names(processes, [])
    assert processes.trouble(1.0).startswith(f"ray::Server (process {started[0].pid}) was killed by SIGKILL")
