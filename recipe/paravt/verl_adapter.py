"""The calls into verl 0.9.1 that change between its releases, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop import agent_loop as verl_agent_loop

VERL_VERSION = "0.9.1"
"""The release this file was written against."""


def register_agent_loop(name: str, target: str) -> None:
    """Registers an agent loop by dotted name, without importing it.

    verl's own decorator needs the class; its registry holds Hydra nodes, which need not.
    """
    verl_agent_loop._agent_loop_registry[name] = {"_target_": target}


def session_of_key(key: str) -> str:
    """``{uid}_{session}_{index}`` → ``{uid}_{session}``: all rows of one rollout."""
    return key.rsplit("_", 1)[0]


def group_of_key(key: str) -> str:
    """``{uid}_{session}_{index}`` → ``{uid}``: all rollouts of one prompt."""
    return key.rsplit("_", 2)[0]


def row_order(key: str) -> tuple[str, int, int]:
    """Sorts rows by prompt, session and position in the session; the last row of a session is the main one."""
    group, session, index = key.rsplit("_", 2)
    return group, int(session), int(index)


def is_padding(tag: Mapping[str, Any]) -> bool:
    """Whether verl added this row to fill a batch."""
    return bool(tag.get("is_padding", False))


def agent_loop_output(
    *,
    prompt_ids: list[int],
    response_ids: list[int],
    response_mask: list[int],
    response_log_probs: list[float],
    images: Sequence[Any],
    reward: float,
    reward_parts: Mapping[str, float],
    num_turns: int,
    timings: Mapping[str, float],
    weight_versions: tuple[int, int],
    extra_fields: Mapping[str, Any],
) -> verl_agent_loop.AgentLoopOutput:
    """The one place where a row for verl is made: all rows of a batch need the same fields.

    Args:
        reward: the score of the session; with ``reward_parts`` it keeps verl's reward workers from scoring again.
        weight_versions: first and last training step whose weights sampled this row.
        timings: seconds of ``generate_sequences`` and ``tool_calls``.
    """
    first, last = weight_versions
    return verl_agent_loop.AgentLoopOutput(
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        response_mask=response_mask,
        response_logprobs=response_log_probs,
        multi_modal_data={"images": list(images)},
        reward_score=reward,
        num_turns=num_turns,
        metrics=verl_agent_loop.AgentLoopMetrics(**timings),
        extra_fields={
            "reward_extra_info": dict(reward_parts),
            "min_global_steps": first,
            "max_global_steps": last,
            **extra_fields,
        },
    )


def to_container(node: Any) -> dict[str, Any]:
    """A resolved plain dictionary of an OmegaConf node."""
    container = OmegaConf.to_container(node, resolve=True)
    if not isinstance(container, dict):
        raise TypeError(f"expected a mapping, got {type(container).__name__}")
    return {str(key): value for key, value in container.items()}
