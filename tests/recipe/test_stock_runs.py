"""In runs that are not ours, both plug-ins only register names."""

import os
import subprocess
import sys

import pytest

STOCK = {k: v for k, v in os.environ.items() if k not in ("PARAVT_RUN_ID", "VERL_PLATFORM")}


def python(code, **environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=STOCK | environment, capture_output=True, text=True, timeout=180, cwd="/")


def test_stock_verl_keeps_its_own_platform_engine_and_replica():
    code = """
import verl
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry
import verl.utils.distributed as distributed
assert "paravt_agent" in _agent_loop_registry and "para_grpo" in ADV_ESTIMATOR_REGISTRY
assert base._ROLLOUT_REGISTRY["vllm", "async"].startswith("verl."), base._ROLLOUT_REGISTRY
assert not hasattr(distributed.initialize_global_process_group_ray, "paravt_backend")
import sys
assert not [name for name in sys.modules if name.startswith("recipe.paravt.cpu.") and not name.endswith(".device")
            and not name.endswith(".platform")]
assert "recipe.paravt.training.trainer" not in sys.modules
print("stock")
"""
    result = python(code)
    assert result.stdout.strip().endswith("stock"), result.stdout + result.stderr


def test_stock_vllm_serves_with_the_package_installed(tiny_model):
    code = f"""
from vllm.plugins import load_general_plugins
if __name__ == "__main__":
    load_general_plugins()
    import ctypes
    death = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(2, ctypes.byref(death))  # PR_GET_PDEATHSIG
    assert death.value == 0, "the plug-in changed a process of a stock run"
    from vllm import LLM, SamplingParams
    options = dict(dtype="float32", enforce_eager=True, max_model_len=256, limit_mm_per_prompt={{"image": 0}})
    llm = LLM({str(tiny_model)!r}, **options)
    (output,) = llm.generate(["You answer"], SamplingParams(max_tokens=4, temperature=0))
    assert len(output.outputs[0].token_ids) == 4
    print("served")
"""
    result = python(code, VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    if "No module named 'vllm'" in result.stderr:
        pytest.skip("vLLM is not installed")
    assert "served" in result.stdout, result.stderr[-3000:]


@pytest.mark.parametrize("platform", ["", "paravt_cpu"])
def test_our_run_has_our_replica_and_adapter(platform):
    code = """
import verl
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry
assert base._ROLLOUT_REGISTRY["vllm", "async"] == "recipe.paravt.training.weight_transfer.RunServerAdapter"
print(RolloutReplicaRegistry.get("vllm").__name__)
"""
    result = python(code, PARAVT_RUN_ID="0123456789ab", CUDA_VISIBLE_DEVICES="0", VERL_PLATFORM=platform)
    assert result.stdout.split()[-1:] == ["CpuReplica" if platform else "RunReplica"], result.stderr[-2000:]


@pytest.mark.parametrize("module", ["recipe.paravt.plugin"])
def test_a_plugin_that_cannot_load_stops_our_run_at_once(module):
    code = """
import sys
sys.modules["recipe.paravt.training.advantage"] = None  # forces the failure
import verl
print("went on")
"""
    result = python(code, PARAVT_RUN_ID="test")
    assert result.returncode != 0 and "went on" not in result.stdout
    assert "paravt-verl: the verl plug-in could not register" in result.stderr
    stock = python(code)
    assert stock.returncode == 0 and "went on" in stock.stdout
