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


def test_a_relative_folder_is_that_of_the_driver(monkeypatch):
    monkeypatch.chdir("/usr")
    monkeypatch.setenv("RAY_TMPDIR", "tmp")
    assert leftovers.environment("x") == {"TMPDIR": "/usr/tmp/paravt-x", "RAY_TMPDIR": "/usr/tmp/paravt-x"}


RUN = "0123456789ab"


def test_a_folder_has_one_owner(tmp_path):
    folder = tmp_path / f"paravt-{RUN}"
    with leftovers.own(folder) as lock:
        assert lock is not None and leftovers.own(folder) is None
        assert list(leftovers.dead_runs(tmp_path)) == []
    assert list(leftovers.dead_runs(tmp_path)) == [(RUN, folder)]
    assert {path.name for path in folder.iterdir() if not path.is_symlink()} == {"owner.lock"}


def test_what_torch_compiled_stays_for_the_next_run(tmp_path):
    folder = tmp_path / f"paravt-{RUN}"
    leftovers.own(folder).close()
    (cache,) = folder.glob("torchinductor_*")
    (cache / "kernel.so").touch()
    leftovers.sweep(RUN, folder)
    assert not folder.exists() and (tmp_path / cache.name / "kernel.so").exists()


def test_somebody_elses_folder_is_no_dead_run(tmp_path):
    for name in ("paravt-data", "paravt-a", f"paravt-{RUN}c", "paravt-"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner.lock").touch()
    (tmp_path / f"paravt-{RUN}").mkdir()
    assert list(leftovers.dead_runs(tmp_path)) == []


def test_a_sweep_takes_what_is_the_runs_and_nothing_else(tmp_path, monkeypatch):
    memory = tmp_path / "shm"
    memory.mkdir()
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", memory)
    folder = tmp_path / f"paravt-{RUN}"
    (folder / "ray" / "deep").mkdir(parents=True)
    for name in (f"paravt-{RUN}-abcd", f"sem.paravt-{RUN}-x"):
        (memory / name).touch()
    kept = ["psm_abcd", f"notes on {RUN}.txt", "paravt-ba9876543210-abcd"]
    for name in kept:
        (memory / name).touch()
        (tmp_path / name).touch()
    socket = Path("/tmp", f"rl-colocate-zmq-{RUN}-replica-0-rank-0.sock")
    socket.touch()
    leftovers.sweep(RUN, folder)
    assert sorted(path.name for path in memory.iterdir()) == sorted(kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "shm"]) and not socket.exists()


@pytest.mark.parametrize("run_id", ["", "a", "*", "0123456789a*", "0123456789abc"])
def test_nothing_is_swept_for_what_is_no_runs_id(tmp_path, run_id):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is no run's id"):
        leftovers.sweep(run_id, tmp_path / "paravt-")
    assert (tmp_path / "file").exists()
