"""Settings: types, ranges, unknown keys, and that the YAML says what the code does."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from recipe.paravt import settings as settings_module
from recipe.paravt.settings import ParaVTSettings

CONFIG_DIR = Path(settings_module.__file__).parent / "config"


def test_defaults_of_yaml_and_code_are_the_same():
    node = yaml.safe_load((CONFIG_DIR / "base.yaml").read_text())["paravt"]
    from_yaml = dataclasses.asdict(ParaVTSettings.from_config(node))
    in_code = dataclasses.asdict(ParaVTSettings())
    # The folder is the run's own matter.
    from_yaml.pop("output_dir"), in_code.pop("output_dir")
    assert from_yaml == in_code

    def names(value):
        return {key: names(item) if isinstance(item, dict) else None for key, item in value.items()}

    assert names(node) == names(dataclasses.asdict(ParaVTSettings())), "a setting that the YAML does not show"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"max_turn": 3}, "unknown setting paravt.max_turn"),
        ({"reward": {"lambda": 1.0}}, "unknown setting paravt.reward.lambda"),
        ({"max_turns": 0}, "max_turns is 0; it must be above 0"),
        ({"max_turns": "3"}, "paravt.max_turns is '3'; it must be int"),
        ({"max_turns": True}, "paravt.max_turns is True; it must be int"),
        ({"dispatch": "both"}, "dispatch is 'both'; it must be one of parallel, sequential"),
        ({"advantage": {"anchor_credit": "word"}}, "anchor_credit is 'word'"),
        ({"subagent": {"min_pixels": 9, "max_pixels": 8}}, "min_pixels 9 is above max_pixels 8"),
        ({"fixed_frame_budget": 0}, "fixed_frame_budget is 0"),
        ({"reward": 3}, "paravt.reward is 3; it must hold settings"),
    ],
)
def test_bad_settings_are_named(node, message):
    with pytest.raises(ValueError, match="paravt") as error:
        ParaVTSettings.from_config(node)
    assert message in str(error.value)


def test_integers_are_taken_for_floats():
    assert ParaVTSettings.from_config({"reward": {"w_tool": 0}}).reward.w_tool == 0.0


def test_sequential_dispatch_takes_one_call_a_turn():
    assert ParaVTSettings(dispatch="sequential").calls_per_turn == 1
    assert ParaVTSettings().calls_per_turn == 5


def test_anchor_is_in_the_score_with_sequence_credit_only():
    # Otherwise it would be counted twice: in the outcome and at the tokens.
    token = ParaVTSettings.from_config({"advantage": {"anchor_credit": "token"}})
    sequence = ParaVTSettings.from_config({"advantage": {"anchor_credit": "sequence"}})
    assert token.score_settings()["anchor_in_score"] is False
    assert sequence.score_settings()["anchor_in_score"] is True
