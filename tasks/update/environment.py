"""The environment of the learner's ranks, for each kind of hardware."""

from configs.learner import Learner
from tasks.runtime.accelerator import Accelerator, cpu_environment


def learner_environment(learner: Learner, accelerator: Accelerator) -> dict[str, str]:
    """Return what a rank's environment has beyond its node's. docs/hardware.md has the source of each setting."""
    if accelerator == "cpu":
        return cpu_environment(learner.threads)
    shared = {"NCCL_NVLS_ENABLE": "0", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    return shared | {"GPU_MAX_HW_QUEUES": "2"} if accelerator == "amd" else shared
