"""Only what was written to its end counts as a checkpoint."""

import json
from pathlib import Path

import pytest

from recipe.paravt.lifecycle.checkpoints import MARK, checkpoints, last_whole, mark_complete, remove_old


@pytest.fixture
def folder(tmp_path):
    for step in (5, 10, 15):
        actor = tmp_path / f"global_step_{step}" / "actor"
        actor.mkdir(parents=True)
        (actor / "model.pt").write_bytes(b"x" * 100)
        (actor.parent / "data.pt").write_bytes(b"y")
        mark_complete(actor.parent)
    return tmp_path


def faults(folder):
    return {found.step: found.fault for found in checkpoints(folder)}


def test_the_last_whole_one_is_used(folder):
    assert faults(folder) == {5: None, 10: None, 15: None}
    assert last_whole(folder).step == 15
    (folder / "global_step_20").mkdir()
    (folder / "global_step_20" / "data.pt").touch()
    assert last_whole(folder).step == 15
    assert faults(folder)[20] == "the run ended while it was written"


def test_no_folder_has_no_checkpoint(tmp_path):
    assert last_whole(tmp_path / "nowhere") is None
    (tmp_path / "global_step_x").mkdir()
    (tmp_path / "global_step_3").touch()
    assert checkpoints(tmp_path) == []


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda folder: (folder / "actor" / "model.pt").write_bytes(b"x" * 99), "actor/model.pt has 99 bytes, not 100"),
        (lambda folder: (folder / "data.pt").unlink(), "data.pt is missing"),
        (lambda folder: (folder / MARK).write_text("{"), f"{MARK} cannot be read"),
        (lambda folder: (folder / MARK).write_text("[]"), f"{MARK} cannot be read"),
        (lambda folder: (folder / MARK).write_text('{"files": null}'), f"{MARK} cannot be read"),
    ],
)
def test_a_damaged_one_is_named_and_not_used(folder, damage, fault):
    damage(folder / "global_step_15")
    assert faults(folder)[15].startswith(fault)
    assert last_whole(folder).step == 10


def test_old_ones_go_and_the_last_whole_ones_stay(folder):
    (folder / "global_step_12").mkdir()  # half, and older than a whole one
    (folder / "global_step_20").mkdir()  # being written
    remove_old(folder, keep=2)
    assert sorted(faults(folder)) == [10, 15, 20]
    remove_old(folder, keep=1)
    assert sorted(faults(folder)) == [15, 20]


def test_one_that_cannot_be_removed_ends_nothing(folder, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    remove_old(folder, keep=1)
    assert sorted(faults(folder)) == [5, 10, 15]


def test_nothing_is_removed_before_one_is_whole(tmp_path):
    for step in (1, 2):
        (tmp_path / f"global_step_{step}").mkdir()
    remove_old(tmp_path, keep=1)
    assert sorted(faults(tmp_path)) == [1, 2]


def test_the_mark_lists_every_file(folder):
    sizes = json.loads((folder / "global_step_5" / MARK).read_text())["files"]
    assert sizes == {"actor/model.pt": 100, "data.pt": 1}
