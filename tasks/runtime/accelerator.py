"""The kinds of hardware that engines and learner run on."""

from collections.abc import Mapping
from typing import Literal

Accelerator = Literal["cpu", "nvidia", "amd"]


def cpu_environment(threads: int) -> dict[str, str]:
    """Return what a process that computes on a CPU, beside another one that does, needs in its environment."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",  # idle threads must not take the other's cores
        # One code path gives the same bits whatever the tensors' rows and alignment, and is the fastest on AMD's CPUs.
        "MKL_CBWR": "AVX2",
    }


def vendor(resources: Mapping[str, float]) -> Accelerator:
    """Tell the vendor of a cluster's accelerators by the types that Ray reports among its resources."""
    if not resources.get("GPU"):
        return "cpu"
    return "amd" if any(key.startswith("accelerator_type:AMD") for key in resources) else "nvidia"
