"""Which lines of a log are shown."""

import pytest

from recipe.paravt.lifecycle.log_lines import LogFilter

TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    + Exception Group Traceback (most recent call last):
ValueError: the reason"""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("INFO 12-07 10:00:00 [a.py:1] all is well", None),
        ("step:1 - actor/loss:0.3", None),
        ("a word of a message that is longer than any logger's format: " + "ERROR", None),
        ("WARNING 12-07 10:00:00 [a.py:1] look", "WARNING 12-07 10:00:00 [a.py:1] look"),
        ("2026-12-07 10:00:00,1\tERROR worker.py:1 -- lost", "2026-12-07 10:00:00,1\tERROR worker.py:1 -- lost"),
        ("\x1b[36m(Worker pid=12, ip=10.0.0.1)\x1b[0m WARNING x", "Worker: WARNING x"),
        ("(pid=12) WARNING x", "WARNING x"),
        ("(raylet) [2026-12-07 10:00:00,12 E 1 1] no memory", "raylet: [2026-12-07 10:00:00,12 E 1 1] no memory"),
        ("(A pid=1) (EngineCore_0 pid=2) ERROR y [repeated 3x across cluster]", "EngineCore_0: ERROR y"),
        ("/a/b.py:12: UserWarning: old", "UserWarning: old"),
        ("torch.OutOfMemoryError: CUDA out of memory", "torch.OutOfMemoryError: CUDA out of memory"),
        ("ray.exceptions.RayTaskError(ValueError): x", "ray.exceptions.RayTaskError(ValueError): x"),
        ("[rank1]: ValueError: x", "ValueError: x"),
        ("Fatal Python error: Segmentation fault", "Fatal Python error: Segmentation fault"),
        ("error: paravt.dispatch is 'x'", "error: paravt.dispatch is 'x'"),
        ("[paravt] going on", "[paravt] going on"),
    ],
)  # fmt: skip
def test_warnings_errors_and_lines_of_ours_are_shown(line, shown):
    assert LogFilter(9).pick(line) == shown


def test_of_a_traceback_the_exception_is_shown_also_between_the_lines_of_others():
    chosen = LogFilter(9)
    lines = [f"(A pid=1) {line}" for line in TRACEBACK.splitlines()]
    lines.insert(2, "(B pid=2)   an indented line of another process")
    assert [shown for line in lines if (shown := chosen.pick(line))] == ["A: ValueError: the reason"]


def test_a_traceback_each_line_of_which_a_logger_began():
    chosen = LogFilter(9)
    lines = [f"(EngineCore pid=1) ERROR 12-07 10:00:00 [core.py:9] {line}" for line in TRACEBACK.splitlines()]
    shown = [shown for line in lines if (shown := chosen.pick(line))]
    assert shown == ["EngineCore: ERROR 12-07 10:00:00 [core.py:9] ValueError: the reason"]


def test_many_warnings_leave_room_for_an_error():
    chosen = LogFilter(2)
    for word in ("a", "b", "c"):
        chosen.pick(f"WARNING {word}")
    assert chosen.pick("RuntimeError: CUDA error") == "RuntimeError: CUDA error" and chosen.num_left_out == 1
    failed = "WARNING recipe.paravt.rollout.worker: rollout step1-00000/0 failed (video): /d/%s.mp4: cannot open '%s'"
    other = LogFilter(9)
    assert other.pick(failed % ("a", "a")) and other.pick(failed % ("b", "b")) is None, "one kind, shown once"


def test_what_differs_in_numbers_only_is_shown_once_and_what_is_too_much_is_counted():
    chosen = LogFilter(2)
    lines = ["WARNING a 1", "WARNING a 2", "WARNING b", "WARNING c", "WARNING d", "[paravt] step 1", "WARNING c"]
    assert [shown for line in lines if (shown := chosen.pick(line))] == ["WARNING a 1", "WARNING b", "[paravt] step 1"]
    assert chosen.num_left_out == 2


def test_lines_of_ours_that_differ_in_numbers_are_all_shown():
    chosen = LogFilter(0)
    lines = [f"[paravt] ignoring the checkpoint /x/global_step_{step}" for step in (1, 2)]
    assert [chosen.pick(line) for line in lines] == lines
