"""The one profile that property tests run under; ``conftest.py`` loads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SHOW = """
import conftest
from hypothesis import settings
print(settings.default.deadline, settings.default.derandomize)
"""


def test_a_slow_machine_fails_no_property_test():
    of_a_test = settings(max_examples=500)  # what it does not say itself comes from the profile
    assert of_a_test.deadline is None and HealthCheck.too_slow in of_a_test.suppress_health_check


@pytest.mark.parametrize(("ci", "derandomize"), [("1", "True"), ("", "False"), (None, "False")])
def test_ci_draws_the_same_examples_every_time(ci, derandomize):
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {} if ci is None else {"CI": ci}
    command = [sys.executable, "-c", SHOW]
    process = subprocess.run(command, env=environment, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert process.stdout.split() == ["None", derandomize], process.stderr
