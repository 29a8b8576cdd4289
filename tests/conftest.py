"""The property tests' profile, and what several folders test on, made once a session.

Imports no more than pytest and hypothesis: the tests of ``reward_fns`` also run where nothing else is installed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).parents[1]

# A machine that is busy with something else is no fault of the code. In CI the same examples every time.
settings.register_profile(
    "paravt", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("paravt")


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """Folder of ``python -m data_prep synthetic`` with 6 clips, 18 questions and 40 conversations."""
    from data_prep.__main__ import main

    folder = tmp_path_factory.mktemp("shapes")
    arguments = "--videos 6 --min-duration-seconds 20 --max-duration-seconds 30 --transcripts 40 --workers 1"
    assert main(["synthetic", "--output", str(folder), *arguments.split()]) == 0
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder of ``python -m recipe.paravt.tiny``."""
    output = tmp_path_factory.mktemp("tiny") / "made" / "here"
    command = [sys.executable, "-m", "recipe.paravt.tiny", "--output", str(output)]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=120)
    return output
