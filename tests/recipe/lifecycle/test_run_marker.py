"""What a run's processes are given by the environment."""

import os
import subprocess
import sys

import pytest

from recipe.paravt.lifecycle.run_marker import mark_process, requested_device, run_environment

NAMELESS = """
import getpass, os, sys
from pathlib import Path
from recipe.paravt.lifecycle.run_marker import mark_process
mark_process(os.environ, "0123456789ab", "cpu")
(Path.home() / "token").write_text("x")
print(getpass.getuser(), Path.home())
"""


def test_the_last_device_counts():
    assert requested_device(["x=1"]) == "cuda" and requested_device(["device=cuda", "device=cpu"]) == "cpu"


def test_who_has_a_name_and_a_home_keeps_them():
    environment = {}
    mark_process(environment, "0123456789ab", "cuda")
    assert environment == run_environment("0123456789ab", "cuda") and {"USER", "HOME"}.isdisjoint(environment)


def test_a_user_without_a_passwd_entry_gets_a_name_and_a_home(tmp_path):
    nameless = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    if subprocess.run([*nameless, "true"], capture_output=True).returncode:
        pytest.skip("a user without a name needs user namespaces")
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc", "TMPDIR": str(tmp_path)}
    command = [*nameless, sys.executable, "-c", NAMELESS]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
    assert result.stdout == f"12345 {tmp_path}/home-12345\n", result.stderr
