"""The one door to verl 0.9.1.

What the recipe subclasses is imported where it is subclassed; everything else of verl is used through this module's
functions. They import late: what verl decides while it is imported (its platform) has to be left to the run.
``TOUCHED``, at the end, lists all of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput as AgentLoopOutput
    from verl.tools.schemas import OpenAIFunctionToolSchema as OpenAIFunctionToolSchema
    from verl.tools.schemas import ToolResponse as ToolResponse

VERL_VERSION = "0.9.1"
"""The release this file was written against."""


# ---- what registers names ----------------------------------------------------------------------------------------


def register_agent_loop(name: str, target: str) -> None:
    """Registers an agent loop by dotted name, without importing it.

    verl's own decorator needs the class; its registry holds Hydra nodes, which need not.
    """
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    _agent_loop_registry[name] = {"_target_": target}


def register_advantage_estimator(name: str, function: Callable[..., Any]) -> None:
    """Registers an advantage estimator."""
    from verl.trainer.ppo.core_algos import register_adv_est

    register_adv_est(name)(function)


def register_platform(name: str, platform: type) -> None:
    """Registers a platform, which a run selects by name."""
    from verl.plugin.platform.platform_manager import PlatformRegistry

    PlatformRegistry.register(name)(platform)


def register_trainer(name: str) -> Callable[[type], type]:
    """Class decorator: registers a V1 trainer."""
    from verl.trainer.ppo.v1.trainer_base import register_trainer as register

    return register(name)


def register_engine(engine: type, device: str, vendor: str | None = None) -> None:
    """Makes verl choose this FSDP engine on a device; an engine of the vendor goes before a general one."""
    from verl.workers.engine.base import EngineRegistry

    EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=device, vendor=vendor)(engine)


def register_rollout(load_replica: Callable[[], type], adapter: str) -> None:
    """Selects a vLLM replica and the trainer's end of it; ``_ROLLOUT_REGISTRY`` is private, verl offers no other way.

    Under the name ``vllm`` itself: another name trains too, but verl compares with ``"vllm"`` in places (request
    priority, configuration checks).

    Args:
        load_replica: imports and returns the replica's class.
        adapter: dotted name.
    """
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register("vllm", load_replica)
    base._ROLLOUT_REGISTRY["vllm", "async"] = adapter


def use_weight_sender(sender: type) -> None:
    """Replaces the sender of weights: a module's global, verl's adapter takes it from nowhere else."""
    from verl.workers.rollout.vllm_rollout import vllm_rollout

    vllm_rollout.BucketedWeightSender = sender


def create_shared_memory(num_bytes: int, name: str) -> Any:
    """A segment of shared memory as verl's weight transfer makes it."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import create_shared_memory as create

    return create(num_bytes, name)


def use_process_group_backend(name: str) -> None:
    """Makes Ray workers ask torch for this backend; the function has no registry, verl offers no other way.

    To be called before verl's trainers are imported, whose modules bind the function.
    """
    import verl.utils.distributed as distributed

    initialize = distributed.initialize_global_process_group_ray
    if getattr(initialize, "paravt_backend", None):
        return

    @functools.wraps(initialize)
    def initialize_with_backend(timeout_second: Any = None, backend: str | None = None) -> None:
        initialize(timeout_second, backend or name)

    initialize_with_backend.paravt_backend = name  # type: ignore[attr-defined]
    distributed.initialize_global_process_group_ray = initialize_with_backend


def missing_registrations(agent_loop: str, advantage_estimator: str, trainer: str) -> list[str]:
    """Which of these names verl does not know, in words."""
    import verl  # noqa: F401  (loads the entry points)
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    registries: dict[str, tuple[str, Any]] = {
        "agent loop": (agent_loop, _agent_loop_registry),
        "advantage estimator": (advantage_estimator, ADV_ESTIMATOR_REGISTRY),
        "V1 trainer": (trainer, TRAINER_REGISTRY),
    }
    return [f"{what} {name!r}" for what, (name, registry) in registries.items() if name not in registry]


# ---- what starts a run -------------------------------------------------------------------------------------------


def to_container(node: Any) -> dict[str, Any]:
    """A resolved plain dictionary of an OmegaConf node."""
    container = OmegaConf.to_container(node, resolve=True)
    if not isinstance(container, dict):
        raise TypeError(f"expected a mapping, got {type(container).__name__}")
    return {str(key): value for key, value in container.items()}


def validate(config: DictConfig) -> None:
    """verl's own checks of a training configuration."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )


def run_ppo(config: DictConfig, task_runner: Any) -> None:
    """Starts Ray, and verl's trainer in it; returns when the training has ended.

    Args:
        task_runner: has verl's ``remote()`` and ``options()``.
    """
    from verl.trainer.main_ppo import run_ppo as run

    run(config, task_runner_class=task_runner)


def task_runner() -> Any:
    """verl's task runner, a Ray actor class."""
    from verl.trainer.main_ppo import TaskRunnerV1

    return TaskRunnerV1


def start_process_group() -> None:
    """Joins the ranks that ``torchrun`` started, as verl's SFT trainer wants them."""
    from verl.utils.distributed import initialize_global_process_group

    initialize_global_process_group()


def end_process_group() -> None:
    """Leaves them."""
    from verl.utils.distributed import destroy_global_process_group

    destroy_global_process_group()


def step_loss(output: Any) -> float:
    """The loss in what a training worker's ``train_batch`` returns."""
    from verl.utils import tensordict_utils

    return float(tensordict_utils.get(output, "metrics")["loss"])


# ---- rollouts ----------------------------------------------------------------------------------------------------


def agent_loop_worker_class() -> type:
    """The class of verl's agent-loop workers that can be subclassed; what the module exports is Ray's wrapper of it."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    return AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__


def token_builder(tokenizer: Any, processor: Any, mm_processor_kwargs: Mapping[str, Any]) -> Any:
    """The continuous-token builder that verl's agent loops use for Qwen3-VL."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    return create_continuous_token_builder(
        tokenizer,
        hf_model_type="qwen3_vl",
        chat_template_kwargs={},
        mm_processor_kwargs=dict(mm_processor_kwargs),
        processor=processor,
    )


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
) -> AgentLoopOutput:
    """A row for verl: all rows of a batch need the same fields.

    Args:
        reward: the score of the session; with ``reward_parts`` it keeps verl's reward workers from scoring again.
        weight_versions: first and last training step whose weights sampled this row.
        timings: seconds of ``generate_sequences`` and ``tool_calls``.
    """
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    first, last = weight_versions
    return AgentLoopOutput(
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        response_mask=response_mask,
        response_logprobs=response_log_probs,
        multi_modal_data={"images": list(images)},
        mm_processor_kwargs=dict(mm_processor_kwargs),
        reward_score=reward,
        num_turns=num_turns,
        metrics=AgentLoopMetrics(**timings),
        extra_fields={
            "reward_extra_info": dict(reward_parts),
            "min_global_steps": first,
            "max_global_steps": last,
            **extra_fields,
        },
    )


def tool_schema(schema: Mapping[str, Any]) -> OpenAIFunctionToolSchema:
    """An OpenAI function schema as verl's stock tool loop takes it."""
    from verl.tools.schemas import OpenAIFunctionToolSchema

    return OpenAIFunctionToolSchema.model_validate(schema)


def tool_response(text: str | None = None, images: Sequence[Any] | None = None) -> ToolResponse:
    """What a tool of verl's stock loop returns."""
    from verl.tools.schemas import ToolResponse

    # verl refuses an entry that is there and None.
    return ToolResponse(**({"text": text} if text is not None else {}), **({"image": list(images)} if images else {}))


# ---- rows in the transfer queue ----------------------------------------------------------------------------------


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


def read_columns(batch: Any, *names: str) -> Any:
    """Columns of a batch's rows, as a TensorDict of nested tensors and lists."""
    import transfer_queue as tq

    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))


def write_response_columns(batch: Any, response_mask: Any, columns: Mapping[str, torch.Tensor]) -> Any:
    """Writes columns of the response's tokens.

    Args:
        response_mask: the nested column that says how long each response is.
        columns: padded tensors. Shape ``[R, T]``.

    Returns:
        The batch with them.
    """
    import transfer_queue as tq
    from tensordict import TensorDict
    from verl.workers.utils.padding import response_to_nested

    fields = {name: response_to_nested(values, response_mask) for name, values in columns.items()}
    return tq.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch.keys))
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


# ---- the table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerlName:
    """One name of verl that the recipe touches.

    Attributes:
        name: ``module:Name``.
        used_by: file under ``recipe/paravt``.
        parameters: of a function or class that is called, as ``inspect`` gives them, without annotations; ``=`` stands
            for a default. None where nothing of ours calls it.
        overrides: method that a subclass of ours overrides → its parameters.
        members: attributes and methods that ours reads, sets or calls on an instance.
    """

    name: str
    used_by: str
    parameters: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()


TOUCHED: tuple[VerlName, ...] = ()
"""All of verl that the recipe touches, as 0.9.1 has it. ``tests/recipe/test_verl_adapter.py`` holds it to the release
that is installed, and to the imports of this package."""
