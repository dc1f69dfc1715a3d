"""The vendor of the GPUs that a run is on, which of them a process may see, and which variables say so.

NVIDIA's driver reads CUDA_VISIBLE_DEVICES. AMD's has two filters, one behind the other: ROCR_VISIBLE_DEVICES in the
runtime, then HIP_VISIBLE_DEVICES, for which CUDA_VISIBLE_DEVICES is another name
(https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html). Ray writes HIP_VISIBLE_DEVICES on AMD, and from
version 2.45 on refuses to start where only ROCR_VISIBLE_DEVICES is set (ray-project/ray pull request 51104).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from configs.errors import UserError

Accelerator = Literal["cpu", "nvidia", "amd"]
"""The kinds of hardware that engines and learner run on."""
TYPE = "accelerator_type:"
"""Begins Ray's name of the resource that a node with GPUs of a type has once."""
CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def visible_devices(environment: Mapping[str, str], accelerator: Accelerator) -> list[str] | None:
    """Return the GPUs that an environment leaves visible, by index or id; None where it doesn't restrict them.

    On AMD, ROCR_VISIBLE_DEVICES alone is read as HIP_VISIBLE_DEVICES: `device_environment` of the result is what a
    process has to be started with.

    Raises:
        UserError: on AMD, two variables that contradict each other, or that filter one after the other.
    """
    if accelerator == "cpu":
        return []
    if accelerator == "nvidia":
        return _ids(environment[CUDA]) if CUDA in environment else None
    given = {name: _ids(environment[name]) for name in (HIP, CUDA, ROCR) if name in environment}
    if ROCR in given and len(given) > 1:
        other = next(name for name in given if name != ROCR)
        raise UserError(
            f"{ROCR}={environment[ROCR]} and {other}={environment[other]} are both set: the second counts within what "
            f"the first leaves, so devices get lost. Unset {ROCR} and name the devices in {HIP}"
        )
    if HIP in given and CUDA in given and given[HIP] != given[CUDA]:
        raise UserError(
            f"{HIP}={environment[HIP]} and {CUDA}={environment[CUDA]} contradict each other; on AMD they are the same "
            f"setting. Unset {CUDA}"
        )
    return next(iter(given.values()), None)


def device_environment(devices: Sequence[str], accelerator: Accelerator) -> dict[str, str]:
    """Return the variable that shows a process these GPUs and no others; none of it on a CPU."""
    names: dict[Accelerator, str] = {"nvidia": CUDA, "amd": HIP}
    return {names[accelerator]: ",".join(devices)} if accelerator in names else {}


def unset_by_ray(accelerator: Accelerator) -> dict[str, str]:
    """Return the variable that keeps Ray from writing which GPUs a process sees.

    Ray writes it for an actor that holds GPUs, and where RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO is set also for one that
    holds none, which then sees none.
    """
    return {f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in device_environment([], accelerator)}


def _ids(value: str) -> list[str]:
    """Split a list of devices; both drivers stop reading at the first -1."""
    ids = [part.strip() for part in value.split(",") if part.strip()]
    return ids[: ids.index("-1")] if "-1" in ids else ids


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
