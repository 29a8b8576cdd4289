"""``reward_fns`` as the custom reward function of any veRL project, through verl's own loader."""

import asyncio
import inspect

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.reward import get_custom_reward_fn

TEXT = "<think>\nThe car is red, I see.</think><answer>a red car</answer>"


def load(name, **reward_kwargs):
    function = {"path": "pkg://reward_fns", "name": name, "reward_kwargs": reward_kwargs}
    return get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))


def test_the_four_lines_of_the_readme():
    function = load("compute_score", w_fmt=0.5, w_tool=0.0, lambda_anchor=0.0)
    assert not inspect.iscoroutinefunction(function)
    parts = function(data_source="x", solution_str=TEXT, ground_truth="a red car", extra_info={"num_turns": 2})
    assert parts["score"] == pytest.approx(1.0 + 0.5 * 0.8)


def test_the_judge_is_asynchronous_there_too():
    function = load("acompute_score", judge={"base_url": "http://127.0.0.1:9/v1", "model": "m", "max_attempts": 1})
    assert inspect.iscoroutinefunction(function)
    arguments = {"data_source": "x", "solution_str": TEXT, "ground_truth": "a red car"}
    assert asyncio.run(function(**arguments, extra_info={"question_type": "oe"}))["judge_fallback"] == 1.0
