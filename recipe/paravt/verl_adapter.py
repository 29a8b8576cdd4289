"""The calls into verl 0.9.1 that change between its releases, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop import agent_loop as verl_agent_loop
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

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
    mm_processor_kwargs: Mapping[str, Any],
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
        mm_processor_kwargs=dict(mm_processor_kwargs),
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


def token_builder(tokenizer: Any, processor: Any, mm_processor_kwargs: Mapping[str, Any]) -> Any:
    """The continuous-token builder that verl's agent loops use for Qwen3-VL."""
    return create_continuous_token_builder(
        tokenizer,
        hf_model_type="qwen3_vl",
        chat_template_kwargs={},
        mm_processor_kwargs=dict(mm_processor_kwargs),
        processor=processor,
    )


def position_ids(processor: Any, input_ids: torch.Tensor, image_grid_thw: torch.Tensor) -> torch.Tensor:
    """Text and vision positions of one sequence, as verl's agent loop computes them.

    Args:
        input_ids: Shape ``[L]``.
        image_grid_thw: Shape ``[num_images, 3]``.

    Returns:
        Shape ``[4, L]``: text positions, then time, height and width.
    """
    batch = input_ids.unsqueeze(0)
    vision, _ = processor.get_rope_index(
        input_ids=batch,
        attention_mask=torch.ones_like(batch),
        image_grid_thw=image_grid_thw,
        video_grid_thw=None,
        mm_token_type_ids=(batch == processor.image_token_id).long(),
    )
    text = torch.arange(len(input_ids)).unsqueeze(0)
    return torch.cat((text, vision.squeeze(1)), dim=0)
