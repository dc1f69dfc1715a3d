"""The kinds of hardware that engines and learner run on."""

from collections.abc import Mapping
from typing import Literal

from configs.errors import UserError

Accelerator = Literal["cpu", "nvidia", "amd"]
TYPE = "accelerator_type:"
"""Begins Ray's name of the resource that a node with GPUs of a type has once."""


def cpu_environment(threads: int) -> dict[str, str]:
    """Return what a process that computes on a CPU, beside another one that does, needs in its environment."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",  # idle threads must not take the other's cores
        # One code path gives the same bits whatever the tensors' rows and alignment, and is the fastest on AMD's CPUs.
        "MKL_CBWR": "AVX2",
    }


def gpu_type(chosen: str | None, resources: Mapping[str, float]) -> str | None:
    """Return the type of the GPUs that a run is on, as Ray names it; None where Ray knows none.

    Args:
        chosen: The recipe's `accelerator_type`.
        resources: What Ray says that the cluster has.

    Raises:
        UserError: the cluster has GPUs of several types and none is chosen, or none of the chosen type.
    """
    there = sorted(name.removeprefix(TYPE) for name in resources if name.startswith(TYPE))
    if chosen and chosen not in there:
        raise UserError(f"accelerator_type is {chosen}, but the cluster has {', '.join(there) or 'no GPU of a type'}")
    if not chosen and len(there) > 1:
        raise UserError(
            f"the cluster has GPUs of several types, and a run is on one: set accelerator_type to {' or '.join(there)}"
        )
    return chosen or next(iter(there), None)


def vendor(chosen: str | None, resources: Mapping[str, float]) -> Accelerator:
    """Return the vendor of the GPUs that a run is on, or cpu where there are none; arguments as of `gpu_type`."""
    if not resources.get("GPU"):
        return "cpu"
    return "amd" if (gpu_type(chosen, resources) or "").startswith("AMD") else "nvidia"
