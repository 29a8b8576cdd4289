"""A driver that waits for ever ends when a process that it needs dies or is stopped."""

import os
import signal
import subprocess
import time

import pytest


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", ["needed", "guard"])
def test_a_hanging_driver_ends_and_says_what_died(small_run, victim, sent):
    run = small_run()
    time.sleep(1.0)
    pid = getattr(run, victim)
    os.kill(pid, sent)
    _, errors = run.driver.communicate(timeout=60)
    assert run.driver.returncode == 1
    name = {"needed": "VLLM::EngineCore", "guard": "recipe.paravt.lifecycle.guard"}[victim]
    # While its parent has not waited for it, or on an old kernel, nothing more is known than that it is gone.
    ends = ["was stopped and does not answer"] if sent == signal.SIGSTOP else ["was killed by SIGKILL", "is gone"]
    assert any(f"error: {name} (process {pid}) {end}, while starting\nhow to go on" in errors for end in ends), errors
    assert run.wait_until_clean(30) == []


def test_a_process_that_is_not_needed_may_end(small_run):
    run = small_run()
    time.sleep(1.0)
    os.kill(run.other, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        run.driver.wait(timeout=3)
