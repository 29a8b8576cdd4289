"""A small synthetic data set, made once."""

import json
from pathlib import Path

import pytest

from data_prep.__main__ import main


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """Folder of ``python -m data_prep synthetic`` with 6 clips, 18 questions and 40 conversations."""
    folder = tmp_path_factory.mktemp("shapes")
    arguments = "--videos 6 --min-duration-seconds 20 --max-duration-seconds 30 --transcripts 40 --workers 1"
    assert main(["synthetic", "--output", str(folder), *arguments.split()]) == 0
    return folder


@pytest.fixture(scope="session")
def lines(shapes):
    """The annotations of ``shapes``."""
    return [json.loads(line) for line in (shapes / "annotations.jsonl").read_text().splitlines()]


@pytest.fixture
def annotate(tmp_path):
    """Writes records to a JSON Lines file and returns its path."""

    def write(records, name="annotations.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    return write
