"""The environment of the learner's ranks, for each kind of hardware."""

from configs.schema import Recipe
from tasks.cluster.devices import Accelerator, cpu_environment, unset_by_ray

ENGINE_CHANNELS = "8"
"""NCCL's channels in a deterministic engine of several GPUs (SGLANG_DETERMINISTIC_NCCL_NCHANNELS, 0.5.23)."""


def learner_environment(recipe: Recipe, accelerator: Accelerator) -> dict[str, str]:
    """Return what a rank's environment has beyond its node's. docs/hardware.md has the source of each setting."""
    if accelerator == "cpu":
        return cpu_environment(recipe.learner.threads)
    # For a broadcast, rank 0 and the engines are in one process group, so NCCL needs SGLang's settings here too.
    nccl = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
    allocator = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    # A rank that shares an engine's GPU holds no GPU in Ray, and Ray must not hide the engine's GPU from it.
    shared = unset_by_ray(accelerator) if recipe.engine.colocated else {}
    return nccl | allocator | _of_vendor(recipe, accelerator) | shared


def _of_vendor(recipe: Recipe, accelerator: Accelerator) -> dict[str, str]:
    if accelerator == "amd":
        return {"GPU_MAX_HW_QUEUES": "2", "TORCH_NCCL_HIGH_PRIORITY": "1"}
    engine = recipe.engine
    if recipe.weight_sync.via == "broadcast" and engine.deterministic and engine.gpus > 1:
        return {"NCCL_MIN_NCHANNELS": ENGINE_CHANNELS, "NCCL_MAX_NCHANNELS": ENGINE_CHANNELS}
    return {}
