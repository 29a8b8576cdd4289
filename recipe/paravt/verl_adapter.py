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
    from verl.utils import distributed

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
    from transfer_queue import kv_batch_get

    return kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))


def write_response_columns(batch: Any, response_mask: Any, columns: Mapping[str, torch.Tensor]) -> Any:
    """Writes columns of the response's tokens.

    Args:
        response_mask: the nested column that says how long each response is.
        columns: padded tensors. Shape ``[R, T]``.

    Returns:
        The batch with them.
    """
    from tensordict import TensorDict
    from transfer_queue import kv_batch_put
    from verl.workers.utils.padding import response_to_nested

    fields = {name: response_to_nested(values, response_mask) for name, values in columns.items()}
    return kv_batch_put(
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
        name: ``module:Name``, ``module:Class.method``.
        used_by: file under ``recipe/paravt``.
        parameters: of what is called, as ``inspect`` gives them, without annotations; ``=`` stands for a default. None
            where nothing of ours calls it.
        overrides: method that the subclass in ``used_by`` overrides → the parameters of verl's own; ``property`` for
            a property.
        members: attributes that ours reads or sets on an instance or a module.
    """

    name: str
    used_by: str
    parameters: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()


TOUCHED: tuple[VerlName, ...] = (
    VerlName("verl.experimental.agent_loop.agent_loop:_agent_loop_registry", "verl_adapter.py"),
    VerlName("verl.trainer.ppo.core_algos:register_adv_est", "verl_adapter.py", parameters="name_or_enum"),
    VerlName("verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY", "verl_adapter.py"),
    VerlName(
        "verl.plugin.platform.platform_manager:PlatformRegistry.register", "verl_adapter.py", parameters="platform"
    ),
    VerlName("verl.trainer.ppo.v1.trainer_base:register_trainer", "verl_adapter.py", parameters="name"),
    VerlName("verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY", "verl_adapter.py"),
    VerlName(
        "verl.workers.engine.base:EngineRegistry.register",
        "verl_adapter.py",
        parameters="model_type, backend, device=, vendor=",
    ),
    VerlName("verl.workers.rollout:base", "verl_adapter.py", members=("_ROLLOUT_REGISTRY",)),
    VerlName(
        "verl.workers.rollout.replica:RolloutReplicaRegistry.register", "verl_adapter.py", parameters="name, loader"
    ),
    VerlName("verl.workers.rollout.vllm_rollout:vllm_rollout", "verl_adapter.py", members=("BucketedWeightSender",)),
    VerlName(
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer:create_shared_memory",
        "verl_adapter.py",
        parameters="size, name",
    ),
    VerlName(
        "verl.utils:distributed.initialize_global_process_group_ray",
        "verl_adapter.py",
        parameters="timeout_second=, backend=",
    ),
    VerlName("verl.utils.distributed:initialize_global_process_group", "verl_adapter.py", parameters="timeout_second="),
    VerlName("verl.utils.distributed:destroy_global_process_group", "verl_adapter.py", parameters=""),
    VerlName("verl.trainer.ppo.utils:need_critic", "verl_adapter.py", parameters="config"),
    VerlName("verl.trainer.ppo.utils:need_reference_policy", "verl_adapter.py", parameters="config"),
    VerlName(
        "verl.utils.config:validate_config", "verl_adapter.py", parameters="config, use_reference_policy, use_critic"
    ),
    VerlName("verl.trainer.main_ppo:run_ppo", "verl_adapter.py", parameters="config, task_runner_class"),
    VerlName("verl.trainer.main_ppo:TaskRunnerV1", "verl_adapter.py"),
    VerlName("verl.utils:tensordict_utils.get", "verl_adapter.py", parameters="tensordict, key, default="),
    VerlName("verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ", "verl_adapter.py"),
    VerlName(
        "verl.utils.tokenizer.continuous_token_wiring:create_continuous_token_builder",
        "verl_adapter.py",
        parameters=(
            "tokenizer, *, model_family=, hf_model_type=, chat_template_kwargs=, mm_processor_kwargs=, "
            "processor=, **builder_kwargs"
        ),
    ),
    VerlName(
        "verl.experimental.agent_loop.agent_loop:AgentLoopOutput",
        "verl_adapter.py",
        parameters=(
            "*, prompt_ids, response_ids, response_mask, response_logprobs=, routed_experts=, "
            "multi_modal_data=, reward_score=, num_turns=, metrics, extra_fields=, mm_processor_kwargs=, "
            "mm_processor_output="
        ),
    ),
    VerlName(
        "verl.experimental.agent_loop.agent_loop:AgentLoopMetrics",
        "verl_adapter.py",
        parameters="*, generate_sequences=, tool_calls=, compute_score=, num_preempted=",
    ),
    VerlName("verl.tools.schemas:OpenAIFunctionToolSchema", "verl_adapter.py", members=("model_validate",)),
    VerlName("verl.tools.schemas:ToolResponse", "verl_adapter.py", parameters="*, text=, image=, video="),
    VerlName("transfer_queue:kv_batch_get", "verl_adapter.py", parameters="keys, partition_id, select_fields="),
    VerlName(
        "transfer_queue:kv_batch_put", "verl_adapter.py", parameters="keys, partition_id, fields=, tags=, data_parser="
    ),
    VerlName("transfer_queue:KVBatchMeta", "verl_adapter.py", members=("keys", "partition_id")),
    VerlName("verl.workers.utils.padding:response_to_nested", "verl_adapter.py", parameters="tensor, response_mask"),
    VerlName(
        "verl.experimental.agent_loop.agent_loop:AgentLoopBase",
        "rollout/agent_loop.py",
        overrides={
            "__init__": (
                "self, trainer_config, server_manager, tokenizer, processor, dataset_cls, data_config, "
                "hf_model_type=, **kwargs"
            ),
            "run": "self, sampling_params, **kwargs",
        },
        members=(
            "config",
            "tokenizer",
            "processor",
            "mm_processor_kwargs",
            "rollout_config",
            "server_manager",
            "continuous_token_builder",
        ),
    ),
    VerlName(
        "verl.workers.rollout.llm_server:LLMServerClient.generate",
        "rollout/agent_loop.py",
        parameters=(
            "self, request_id, *, prompt_ids, sampling_params, image_data=, video_data=, audio_data=, "
            "mm_processor_kwargs=, **kwargs"
        ),
    ),
    VerlName(
        "verl.workers.rollout.replica:TokenOutput",
        "rollout/agent_loop.py",
        members=("token_ids", "log_probs", "stop_reason", "extra_fields"),
    ),
    VerlName(
        "verl.utils.tokenizer.continuous_token:QwenVLContinuousTokenBuilder.build_initial_tokens",
        "rollout/episode.py",
        parameters="self, messages, *, tools=, images=, videos=, audios=, mm_inputs_out=",
    ),
    VerlName(
        "verl.utils.tokenizer.continuous_token:QwenVLContinuousTokenBuilder.merge_context_tokens",
        "rollout/episode.py",
        parameters="self, previous_messages, updated_messages, runtime_token_ids, *, tools=",
    ),
    VerlName("verl.utils.tokenizer.continuous_token:MergeResult", "rollout/episode.py", members=("token_ids",)),
    VerlName(
        "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ",
        "rollout/worker.py",
        overrides={
            "__init__": "self, *args, **kwargs",
            "_run_agent_loop": "self, sampling_params, trajectory, *, agent_name, trace=, **kwargs",
        },
        members=("config", "tokenizer", "processor", "mm_processor_kwargs"),
    ),
    VerlName(
        "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ._agent_loop_postprocess",
        "rollout/worker.py",
        parameters="self, output, validate, **kwargs",
    ),
    VerlName(
        "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopManagerTQ",
        "rollout/worker.py",
        overrides={"__init__": "self, *args, **kwargs"},
        members=("agent_loop_workers_class",),
    ),
    VerlName(
        "verl.utils.dataset.rl_dataset:RLHFDataset",
        "rollout/dataset.py",
        overrides={"maybe_filter_out_long_prompts": "self, dataframe=", "__getitem__": "self, item"},
        members=("dataframe",),
    ),
    VerlName(
        "verl.tools.base_tool:BaseTool",
        "rollout/crop_tool.py",
        overrides={
            "__init__": "self, config, tool_schema",
            "get_openai_tool_schema": "self",
            "create": "self, instance_id=, **kwargs",
            "execute": "self, instance_id, parameters, **kwargs",
            "release": "self, instance_id, **kwargs",
        },
    ),
    VerlName(
        "verl.trainer.ppo.v1.trainer_sync:PPOTrainerSync",
        "training/trainer.py",
        overrides={
            "__init__": "self, config",
            "_build_replay_buffer": "self",
            "fit": "self, agent_loop_manager",
            "on_init_end": "self",
            "on_step_begin": "self",
            "on_sample_end": "self",
            "on_step_end": "self",
            "on_validate_begin": "self",
            "_fetch_one_gen_batch": "self",
            "_step_once": "self, metrics, timing_raw, sample_batch_size",
            "_balance_batch": "self, batch, metrics, logging_prefix=, keep_minibatch=",
            "step": "self, metrics, timing_raw",
            "_save_checkpoint": "self",
            "_compute_advantage": "self, batch, metrics",
            "_compute_metrics": "self, batch, metrics, timing_raw, global_steps, epoch",
            "_log_rollout_data": "self, batch, timing_raw, rollout_data_dir",
            "_val_metrics_update": (
                "self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, expected_acc_counts="
            ),
        },
        members=("config", "trainer_mode", "global_steps", "total_training_steps", "steps_per_epoch", "timing_raw"),
    ),
    VerlName("transfer_queue:KVBatchMeta", "training/trainer.py", members=("keys", "tags")),
    VerlName("transfer_queue:KVBatchMeta.reorder", "training/trainer.py", parameters="self, indexes"),
    VerlName("verl.trainer.ppo.v1.replay_buffer:ReplayBuffer", "training/trainer.py", members=("poll_interval",)),
    VerlName(
        "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithLMHead",
        "training/engine.py",
        overrides={
            "_build_module": "self",
            "save_checkpoint": "self, local_path, hdfs_path=, global_step=, max_ckpt_to_keep=, **kwargs",
        },
        members=("model_config",),
    ),
    VerlName("verl.workers.config:HFModelConfig", "training/engine.py", members=("hf_config", "override_config")),
    VerlName(
        "verl.trainer.sft_trainer:SFTTrainer",
        "training/sft_trainer.py",
        overrides={"__init__": "self, config", "_build_ckpt_handler": "self", "fit": "self"},
        members=(
            "config",
            "rank",
            "engine",
            "train_dataloader",
            "training_client",
            "ckpt_handler",
            "resume_global_step",
            "total_training_steps",
        ),
    ),
    VerlName("verl.trainer.sft_trainer:SFTTrainer._get_lora_train_meta", "training/sft_trainer.py", parameters="self"),
    VerlName(
        "verl.workers.engine_workers:TrainingWorker.train_batch", "training/sft_trainer.py", parameters="self, data"
    ),
    VerlName(
        "verl.utils.checkpoint.checkpoint_handler:CheckpointHandler",
        "training/sft_trainer.py",
        overrides={
            "__init__": (
                "self, engine, train_dataloader, *, default_local_dir, max_ckpt_to_keep=, "
                "default_hdfs_dir=, resume_mode=, resume_from_path=, mode=, lora_train_meta="
            ),
            "save_checkpoint": "self, step",
            "_find_latest_checkpoint": "self",
            "_load_dataloader_state": "self, checkpoint_path",
        },
        members=("default_local_dir", "rank", "resume_global_step", "train_dataloader"),
    ),
    VerlName(
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer:BucketedWeightSender",
        "training/weight_transfer.py",
        overrides={"_init_socket": "self", "_init_buffer": "self"},
        members=("socket", "use_shm", "shm", "bucket_size", "buffer"),
    ),
    VerlName(
        "verl.workers.rollout.vllm_rollout.vllm_async_server:vLLMHttpServer",
        "training/weight_transfer.py",
        overrides={
            "__init__": (
                "self, config, model_config, rollout_mode, workers, replica_rank, node_rank, "
                "gpus_per_node, nnodes, cuda_visible_devices, disaggregation_role=, "
                "disaggregation_kv_transfer_config="
            )
        },
    ),
    VerlName(
        "verl.workers.rollout.vllm_rollout.vllm_async_server:vLLMReplica",
        "training/weight_transfer.py",
        overrides={
            "__init__": (
                "self, replica_rank, config, model_config, gpus_per_node=, is_reward_model=, "
                "is_teacher_model=, name_suffix="
            )
        },
        members=("server_class",),
    ),
    VerlName(
        "verl.workers.rollout.vllm_rollout.vllm_rollout:ServerAdapter",
        "training/weight_transfer.py",
        overrides={
            "__init__": "self, config, model_config, device_mesh, replica_rank=",
            "update_weights": "self, weights, global_steps=, wire_format=, **kwargs",
        },
        members=("zmq_handle",),
    ),
    VerlName(
        "verl.plugin.platform.platform_base:PlatformBase",
        "cpu/platform.py",
        overrides={
            "device_name": "property",
            "vendor_name": "property",
            "device_module": "property",
            "is_available": "self",
            "is_platform_available": "self, use_smi_check=",
            "current_device": "self",
            "device_count": "self",
            "set_device": "self, device_index",
            "synchronize": "self, device_index=",
            "manual_seed": "self, seed",
            "manual_seed_all": "self, seed",
            "set_allocator_settings": "self, settings",
            "empty_cache": "self",
            "get_device_capability": "self, device_index=",
            "communication_backend_name": "self",
            "visible_devices_envvar": "self",
            "nvtx_range": "self, msg",
            "profiler_start": "self",
            "profiler_stop": "self",
            "ray_resource_name": "self",
            "ray_noset_envvars": "self",
            "is_ipc_supported": "self",
            "rollout_env_vars": "self",
            "cudart": "self",
        },
    ),
    VerlName(
        "verl.workers.rollout.vllm_rollout.utils:vLLMColocateWorkerExtension",
        "cpu/worker_extension.py",
        overrides={"_update_weights": "self, weights, peft_config, base_sync_done"},
    ),
    VerlName(
        "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithLMHead",
        "cpu/engine.py",
        overrides={
            "__init__": "self, model_config, engine_config, optimizer_config, checkpoint_config",
            "_build_fsdp_module": "self, module",
        },
        members=("engine_config",),
    ),
    VerlName("verl.workers.config:FSDPEngineConfig", "cpu/engine.py", members=("forward_only",)),
    VerlName(
        "verl.workers.rollout.vllm_rollout.vllm_async_server:vLLMHttpServer",
        "cpu/server.py",
        overrides={"_get_worker_extension_cls": "self"},
    ),
    VerlName("verl.workers.rollout.vllm_rollout.vllm_async_server:vLLMReplica", "cpu/server.py"),
)
"""All of verl that the recipe touches, as 0.9.1 has it. ``tests/recipe/test_verl_adapter.py`` holds it to the release
that is installed, and to the imports of this package."""
