"""What a run leaves in its folder, and that a resume neither doubles nor loses a step."""

import json
import subprocess
import sys

import pytest

from recipe.paravt.lifecycle.checkpoints import mark_complete
from recipe.paravt.lifecycle.run_files import MetricsFile, lock_folder, write_atomically, write_rollouts
from recipe.paravt.lifecycle.summary import end_of_run, summary_table


def steps_in(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_new_run_and_its_steps(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_step=0)
    file.put(1, {"a": 1.5})
    file.put(2, {"a": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "a": 1.5},
        {"step": 2, "a": 2},
    ]


def test_a_resume_goes_on_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_step=0)
    for step in range(1, 6):
        file.put(step, {"a": step})
    resumed = MetricsFile(path, last_step=4)
    assert steps_in(path) == [1, 2, 3, 4], "step 5 came after the checkpoint and is done again"
    resumed.put(5, {"a": 50})
    assert steps_in(path) == [1, 2, 3, 4, 5]


def test_a_step_that_is_put_twice_has_one_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_step=0)
    for step, value in ((1, 1), (2, "early"), (2, "late"), (3, 3)):
        file.put(step, {"a": value})
    assert [json.loads(line)["a"] for line in path.read_text().splitlines()] == [1, "late", 3]


def test_a_line_cut_by_a_kill_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a"')
    MetricsFile(path, last_step=2).put(2, {"a": 2})
    assert steps_in(path) == [1, 2]


def test_numbers_that_json_lacks_become_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path, last_step=0).put(1, {"nan": float("nan"), "inf": float("inf")})
    assert json.loads(path.read_text()) == {"step": 1, "nan": None, "inf": None}


def test_rollouts_stand_by_group_and_keep_their_characters(tmp_path):
    path = tmp_path / "rollouts" / "3.jsonl"
    write_rollouts(path, [{"group": "b", "x": 1}, {"group": "a", "x": "é"}, {"group": "b", "x": 2}])
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"group": "a", "x": "é"},
        {"group": "b", "x": 1},
        {"group": "b", "x": 2},
    ]
    assert "é" in path.read_text("utf-8")
    assert [item.name for item in path.parent.iterdir()] == ["3.jsonl"], "no temporary file is left"


def test_summary_compares_first_and_last_steps(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", last_step=0)
    for step in range(1, 13):
        file.put(step, {"critic/score/mean": step, "paravt/accuracy": 0.25, "paravt/failed_sessions": 1})
    table = summary_table(str(tmp_path), str(tmp_path / "checkpoints"))
    reward = next(line for line in table.splitlines() if line.startswith("reward"))
    assert reward.split()[1:] == ["3.000", "10.000"]  # means of steps 1 to 5 and 8 to 12
    assert "steps 1 to 12, 12 failed sessions" in table
    assert next(line for line in table.splitlines() if line.startswith("malformed")).split()[-1] == "-"


def test_summary_of_an_empty_run_says_so(tmp_path):
    assert "No training step" in summary_table(str(tmp_path), str(tmp_path / "checkpoints"))


def test_the_end_of_a_run_says_how_to_go_on(tmp_path):
    command = ["python", "-m", "recipe.paravt.main", "paravt.forced_prefix=a b"]
    folders = {"output_dir": str(tmp_path), "checkpoint_dir": str(tmp_path / "checkpoints")}
    text = end_of_run(**folders, command=command)
    assert "no step was finished; there is no checkpoint" in text
    MetricsFile(tmp_path / "metrics.jsonl", last_step=0).put(7, {})
    for step in (5, 6):
        (tmp_path / "checkpoints" / f"global_step_{step}").mkdir(parents=True)
    mark_complete(tmp_path / "checkpoints" / "global_step_5")
    text = end_of_run(**folders, command=command)
    assert "the last finished step is 7" in text
    assert f"the last checkpoint is {tmp_path / 'checkpoints' / 'global_step_5'}" in text
    assert "'paravt.forced_prefix=a b'" in text


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("whole\n")

    def lines_that_break():
        yield "half"
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_atomically(path, lines_that_break())
    assert path.read_text() == "whole\n" and [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_folder_belongs_to_one_run(tmp_path):
    with lock_folder(tmp_path) as lock:
        with pytest.raises(BlockingIOError, match=r"in use by another run \(process \d+ on"):
            lock_folder(tmp_path, wait_seconds=0)
        # Whoever was handed the file holds the folder after its first owner is gone, as the guard does.
        heir = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[lock.fileno()], stdin=subprocess.PIPE)
    with pytest.raises(BlockingIOError):
        lock_folder(tmp_path, wait_seconds=0)
    heir.communicate(b"\n", timeout=10)
    lock_folder(tmp_path, wait_seconds=0).close()
