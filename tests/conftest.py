"""What several folders test on, made once a session."""

import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.__main__ import main

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """Folder of ``python -m data_prep synthetic`` with 6 clips, 18 questions and 40 conversations."""
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
