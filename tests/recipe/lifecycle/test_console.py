"""What a process that has a console shows, and what its log holds: descriptors are turned, so each is a process."""

import json
import os
import pty
import subprocess
import sys
import termios

import pytest

from recipe.paravt.lifecycle.progress import Progress
from recipe.paravt.lifecycle.step_lines import StepLines
from recipe.paravt.lifecycle.summary import step_line, validation_line

NOISY = """
import os, subprocess, sys
from pathlib import Path
from recipe.paravt.lifecycle.console import Console, print_any_character
print_any_character()
with Console(Path(sys.argv[1]), verbose="verbose" in sys.argv, follow="silent" not in sys.argv) as console:
    print("INFO noise")
    os.write(2, b"WARNING from C\\n")
    subprocess.run(["echo", "ERROR of a child"])
    console.say("[paravt] κ starts")
    console.advance(1, 2, "reward 0.5")
    console.advance(2, 2, "reward 0.6")
    print("ERROR of a child")
    if "fault" in sys.argv:
        console.look = lambda: 1 / 0
    console.finish()
    console.say("the table")
    if "broken" in sys.argv:
        raise ValueError("broken")
print("after")
"""


def start(log, *words, **options):
    options = {"capture_output": True, "env": os.environ | {"PYTHONIOENCODING": "utf-8"}, **options}
    return subprocess.run([sys.executable, "-c", NOISY, log, *words], cwd="/", timeout=60, **options)


def test_the_console_shows_what_matters_once_and_the_log_holds_all(tmp_path):
    result = start(tmp_path / "log.txt")
    out = ["[paravt] κ starts", "[paravt] step 1/2  reward 0.5", "[paravt] step 2/2  reward 0.6", "the table", "after"]
    assert result.stdout.decode().splitlines() == out
    assert sorted(result.stderr.decode().splitlines()) == ["ERROR of a child", "WARNING from C"]
    log = (tmp_path / "log.txt").read_text().splitlines()
    assert {"INFO noise", "WARNING from C", "ERROR of a child", "[paravt] κ starts", "the table"} <= set(log)
    assert "after" not in log


def test_verbose_shows_all_and_one_of_several_nothing(tmp_path):
    result = start(tmp_path / "log.txt", "verbose")
    assert "INFO noise" in result.stderr.decode() and result.stderr.decode().count("ERROR of a child") == 2
    result = start(tmp_path / "log.txt", "silent")
    assert result.stderr == b"", "what it says itself goes to stdout"
    assert (tmp_path / "log.txt").read_text().splitlines().count("INFO noise") == 2, "the log is added to"


def test_an_ascii_console_escapes_and_an_error_passes(tmp_path):
    result = start(tmp_path / "log.txt", "broken", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert b"[paravt] \\u03ba starts" in result.stdout
    assert b"ValueError: broken" in result.stderr and result.returncode == 1
    assert "κ starts" in (tmp_path / "log.txt").read_text()


def test_a_console_that_is_the_log_shows_nothing_twice(tmp_path):
    log = tmp_path / "log.txt"
    with log.open("ab") as file:
        start(log, capture_output=False, stdout=file, stderr=file)
    lines = log.read_text().splitlines()
    assert lines.count("[paravt] κ starts") == lines.count("INFO noise") == lines.count("WARNING from C") == 1


# /dev/full takes what is opened and refuses what is written, as a full disk does.
FULL = """
import os, sys
from pathlib import Path
from recipe.paravt.lifecycle.console import Console
with Console(Path(sys.argv[1])) as console:
    for descriptor in (1, 2, console._file.fileno()):
        os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)
    print("what others print")
    console.say("error: the disk is full", error=True)
print("after")
"""


def test_a_log_that_cannot_be_written_hides_no_error(tmp_path):
    command = [sys.executable, "-c", FULL, tmp_path / "log.txt"]
    environment = os.environ | {"PYTHONUNBUFFERED": ""}  # what is not flushed yet fails at the end
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", timeout=60)
    assert result.returncode == 0 and result.stderr == "error: the disk is full\n"
    assert result.stdout.splitlines()[-1] == "after"


@pytest.mark.parametrize("closing", ["| true", "| head -1 >&2", "> /dev/full", ">&-", "2>&-", ">&- 2>&-"])
def test_who_looks_may_leave(tmp_path, closing):
    script = f'"$@" {closing}; exit "${{PIPESTATUS[0]}}"'
    # Without what comes after the console, where stdout is Python's own again.
    program = NOISY.replace('print("after")', "")
    command = ["bash", "-c", script, "bash", sys.executable, "-c", program, tmp_path / "log.txt"]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
    assert result.returncode == 0, result.stderr
    assert "the table" in (tmp_path / "log.txt").read_text()


def test_on_a_terminal_the_steps_are_a_bar(tmp_path):
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 100))
    start(tmp_path / "log.txt", capture_output=False, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    shown = os.read(reader, 100_000).decode()
    assert "2/2" in shown and "100%" in shown and "reward 0.6" in shown and "[paravt] step 2" not in shown


METRICS = {"critic/score/mean": 1.25, "paravt/accuracy": 0.5, "paravt/format_reward": 0.75, "timing_s/step": 8.0}
METRICS["paravt/tool_calls_per_rollout"] = 2.0


def test_a_step_in_a_line():
    assert step_line(METRICS, 300.0) == "reward 1.250  accuracy 0.500  f_τ 0.750  κ 2.000  8.0 s  5 min left"
    assert step_line(METRICS, 30.0).endswith("8.0 s  30 s left") and step_line({}, None).startswith("reward -")
    assert step_line(METRICS | {"paravt/failed_sessions": 3.0}, None).endswith("  3 rollouts failed")
    skipped = {"paravt/skipped_steps": 1.0, "timing_s/step": 2.0, "paravt/failed_sessions": 8.0}
    assert step_line(skipped, None) == "skipped: all of its rollouts failed  2.0 s  8 rollouts failed"
    assert validation_line({"paravt/val/a/accuracy": 0.5, "paravt/val/b/accuracy": None}) == "a 0.500"


class Lines:
    """Stands for a console and keeps what it is told; a real one would turn the descriptors of the tests."""

    def __init__(self):
        self.shown = []

    def say(self, text):
        self.shown.append(text)

    def advance(self, step, num_steps, text):
        self.shown.append(f"{step}/{num_steps} {text}")


@pytest.fixture
def steps(tmp_path):
    """``metrics.jsonl`` with two steps of a run before, how to add lines, the lines shown and where the run is."""
    path = tmp_path / "metrics.jsonl"

    def write(*lines):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write({"step": 1, **METRICS}, {"step": 2, **METRICS})
    console, where = Lines(), [Progress(0, "starting", 0)]
    return StepLines(path, lambda: where[0], console), write, console.shown, where


def test_only_steps_of_this_run_are_shown_and_their_validation_once(steps):
    lines, write, shown, where = steps
    lines.look()
    assert shown == []
    where[0] = Progress(2, "generating", 4)
    lines.look()
    assert len(shown) == 1 and shown[0].startswith("[paravt] step 2 of 4 begins, ")
    again = {"step": 2, **METRICS, "critic/score/mean": 1.5}
    write({"step": 1, **METRICS}, again)
    lines.look()
    lines.look()
    assert len(shown) == 2 and shown[1].startswith("2/4 reward 1.500  ") and shown[1].endswith(" s left")
    write({"step": 1, **METRICS}, again | {"paravt/val/x/accuracy": 0.25})
    lines.look()
    assert shown[2:] == ["[paravt] step 2 validated  accuracy x 0.250"]


def test_a_fault_in_what_is_looked_at_is_logged_and_ends_nothing(tmp_path):
    result = start(tmp_path / "log.txt", "fault")
    assert result.returncode == 0 and result.stdout.decode().splitlines()[-2:] == ["the table", "after"]
    assert "ZeroDivisionError" in (tmp_path / "log.txt").read_text()
