"""The environment of the learner's ranks, for each kind of hardware."""

from configs.learner import Learner
from tasks.runtime.accelerator import Accelerator


def learner_environment(learner: Learner, accelerator: Accelerator) -> dict[str, str]:
    """Return what a rank's environment has beyond its node's. docs/hardware.md has the source of each setting."""
    if accelerator == "cpu":
        return {
            "OMP_NUM_THREADS": str(learner.threads),
            "OMP_WAIT_POLICY": "passive",  # waiting threads would spin against the engine's
            # One code path gives the same bits whatever the alignment of the tensors, and is the fastest on AMD's CPUs.
            "MKL_CBWR": "AVX2",
        }
    shared = {"NCCL_NVLS_ENABLE": "0", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    return shared | {"GPU_MAX_HW_QUEUES": "2"} if accelerator == "amd" else shared
