"""A small synthetic data set, made once."""

import json
from pathlib import Path

import pytest


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
