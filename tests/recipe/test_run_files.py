"""What a run leaves in its folder, and that a resume neither doubles nor loses a step."""

import json

from recipe.paravt.run_files import MetricsFile, write_rollouts
from recipe.paravt.summary import summary_table


def steps_in(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_new_run_and_its_steps(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_step=0)
    file.append(1, {"a": 1.5})
    file.append(2, {"a": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "a": 1.5},
        {"step": 2, "a": 2},
    ]


def test_a_resume_goes_on_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_step=0)
    for step in range(1, 6):
        file.append(step, {"a": step})
    resumed = MetricsFile(path, last_step=4)
    assert steps_in(path) == [1, 2, 3, 4], "step 5 came after the checkpoint and is done again"
    resumed.append(5, {"a": 50})
    assert steps_in(path) == [1, 2, 3, 4, 5]


def test_a_line_cut_by_a_kill_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a"')
    MetricsFile(path, last_step=2).append(2, {"a": 2})
    assert steps_in(path) == [1, 2]


def test_numbers_that_json_lacks_become_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path, last_step=0).append(1, {"nan": float("nan"), "inf": float("inf")})
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
        file.append(step, {"critic/score/mean": step, "paravt/accuracy": 0.25, "paravt/failed_sessions": 1})
    table = summary_table(str(tmp_path))
    reward = next(line for line in table.splitlines() if line.startswith("reward"))
    assert reward.split()[1:] == ["3.000", "10.000"]  # means of steps 1 to 5 and 8 to 12
    assert "steps 1 to 12, 12 failed sessions" in table
    assert next(line for line in table.splitlines() if line.startswith("malformed")).split()[-1] == "-"


def test_summary_of_an_empty_run_says_so(tmp_path):
    assert "No training step" in summary_table(str(tmp_path))
