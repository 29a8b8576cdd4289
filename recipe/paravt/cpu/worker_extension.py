"""What vLLM's CPU worker needs to take new weights while it runs.

vLLM imports this module in its worker before the model is built.
"""

from __future__ import annotations

import os

import torch
import vllm._custom_ops
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

# vLLM packs linear weights for oneDNN and drops the originals; there would be nothing left to load the next
# weights into ("parameter of size 0").
vllm._custom_ops._supports_onednn = False
# Ray gives a worker one OpenMP thread, whatever the machine has.
torch.set_num_threads(len(os.sched_getaffinity(0)))


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """verl's worker extension, with received weights copied out of the shared bucket."""

    def _update_weights(self, weights: list[tuple[str, torch.Tensor]], *args, **kwargs):
        # On a GPU the transfer to the device copies; here the tensors are views of a segment that the sender
        # unlinks, and "cannot close exported pointers" follows.
        return super()._update_weights([(name, tensor.clone()) for name, tensor in weights], *args, **kwargs)
