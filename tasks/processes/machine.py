"""This machine: its GPUs, CPUs and memory. PyTorch is imported only if there may be a GPU."""

import os
from pathlib import Path

import psutil

from configs.errors import UserError
from tasks.cluster.devices import visible_devices
from tasks.cluster.machines import GPUS, Cluster, gpu_of
from tasks.cluster.placement import Node

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of the drivers of NVIDIA, of AMD, and of both under Windows' Linux."""


def has_gpu_driver() -> bool:
    """Tell whether a driver of GPUs is loaded."""
    return any(Path(driver).exists() for driver in DRIVERS)


def local_gpus() -> int:
    """Return the number of GPUs of this machine, NVIDIA or AMD."""
    if not has_gpu_driver():
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def describe_gpus() -> str | None:
    """Return how many GPUs of what kinds this machine has, in words; None if it has none."""
    count = local_gpus()
    if not count:
        return None
    import torch

    vendor = "AMD" if torch.version.hip else "NVIDIA"
    names = {torch.cuda.get_device_name(index) for index in range(count)}
    return f"{count} x {vendor} {', '.join(sorted(names))}"


def check_devices() -> None:
    """Refuse contradicting variables of visible GPUs, if there are GPUs.

    Raises:
        UserError: names both variables.
    """
    if has_gpu_driver():
        import torch

        visible_devices(os.environ, "amd" if torch.version.hip else "nvidia" if torch.version.cuda else "cpu")


def this_node(gpus: int = 0) -> Node:
    """Return what this machine has."""
    return Node(os.cpu_count() or 1, gpus, psutil.virtual_memory().total)


def local_cluster() -> Cluster:
    """Return this machine as a cluster of one node.

    Raises:
        UserError: it has GPUs of a kind that is not known here.
    """
    count = local_gpus()
    if not count:
        return Cluster(1, this_node(), None)
    import torch

    name = torch.cuda.get_device_name()
    gpu = gpu_of(name)
    if gpu is None:
        raise UserError(
            f"this machine's {name} is not one of {', '.join(GPUS)}; name one of about its size by --cluster"
        )
    return Cluster(1, this_node(count), gpu)
