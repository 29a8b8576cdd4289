"""What a run puts on a machine carries its id."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from recipe.paravt.lifecycle import leftovers

NAMED = """
import multiprocessing, sys
from multiprocessing import shared_memory
from recipe.paravt.lifecycle.leftovers import name_shared_memory
def child(names):
    names.append(multiprocessing.Lock()._semlock.name)
if __name__ == "__main__":
    name_shared_memory("run7")
    segment = shared_memory.SharedMemory(create=True, size=10)
    print(segment.name, multiprocessing.get_context("spawn").Lock()._semlock.name)
    segment.unlink()
"""


def test_shared_memory_and_semaphores_carry_the_run():
    process = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, check=True, cwd="/")
    segment, semaphore = process.stdout.split()
    assert segment.startswith("paravt-run7-") and semaphore.startswith("/paravt-run7-")


def test_the_temporary_folder_is_short_enough_for_sockets(monkeypatch):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/scratch/me")
    assert leftovers.environment("0123456789ab")["TMPDIR"] == "/scratch/me/paravt-0123456789ab"
    monkeypatch.setattr(tempfile, "tempdir", "/a/very/long/folder/of/a/cluster")
    folder = leftovers.environment("0123456789ab")["TMPDIR"]
    assert folder == "/tmp/paravt-0123456789ab"
    longest = "/ray/session_2026-12-02_09-46-20_291000_1234567/sockets/plasma_store"
    assert len(folder) + len(longest) <= 107
    monkeypatch.setenv("RAY_TMPDIR", "/big")
    assert leftovers.environment("x")["TMPDIR"] == "/big/paravt-x"


def test_a_folder_has_one_owner(tmp_path):
    folder = tmp_path / "paravt-a"
    with leftovers.own(folder) as lock:
        assert lock is not None and leftovers.own(folder) is None
        assert list(leftovers.dead_runs(tmp_path)) == []
    assert list(leftovers.dead_runs(tmp_path)) == [("a", folder)]
    names = {path.name for path in folder.iterdir() if not path.is_symlink()}
    assert names == {"owner.lock"}


def test_what_torch_compiled_stays_for_the_next_run(tmp_path):
    folder = tmp_path / "paravt-a"
    leftovers.own(folder).close()
    (cache,) = folder.glob("torchinductor_*")
    (cache / "kernel.so").touch()
    leftovers.sweep("a", folder)
    assert not folder.exists() and (tmp_path / cache.name / "kernel.so").exists()


def test_somebody_elses_folder_is_no_dead_run(tmp_path):
    (tmp_path / "paravt-data").mkdir()
    (tmp_path / "paravt-file").touch()
    assert list(leftovers.dead_runs(tmp_path)) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_sweep_takes_what_is_the_runs(tmp_path, kind):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    mine = tmp_path / "some-run9-thing"
    if kind == "folder":
        (mine / "deep").mkdir(parents=True)
    elif kind == "link":
        mine.symlink_to(kept)
    else:
        mine.touch()
    leftovers.sweep("run9", tmp_path / "paravt-run9")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"] and (kept / "file").exists()


def test_nothing_is_swept_for_a_run_without_a_name(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="empty"):
        leftovers.sweep("", tmp_path / "paravt-")
    assert Path(tmp_path / "file").exists()
