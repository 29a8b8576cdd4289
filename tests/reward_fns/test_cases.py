"""The cases of public bug reports: one test a line of ``tests/cases``."""

import json
from pathlib import Path

import pytest

import reward_fns
from reward_fns import Transcript
from reward_fns.grammar import parse_tool_calls

CASES = Path(__file__).parents[1] / "cases"


def load(name):
    cases = [json.loads(line) for line in (CASES / name).read_text().splitlines()]
    assert cases
    return [pytest.param(case, id=f"{case['kind']}: {case['why']}") for case in cases]


@pytest.mark.parametrize("case", load("rewards.jsonl"))
def test_reward(case):
    arguments = {key: value for key, value in case.items() if key not in ("kind", "why", "expected")}
    if case["kind"] == "format_reward":
        arguments = {"transcript": Transcript.from_text(arguments["text"])}
    value = getattr(reward_fns, case["kind"])(**arguments)
    if isinstance(case["expected"], float):
        assert value == pytest.approx(case["expected"], abs=1e-4)
    else:
        assert value == case["expected"]


@pytest.mark.parametrize("case", load("tool_calls.jsonl"))
def test_tool_calls(case):
    parsed = parse_tool_calls(case["text"])
    assert [{"name": call.name, "arguments": call.arguments} for call in parsed.calls] == case["calls"]
    assert len(parsed.errors) == case["num_errors"]
