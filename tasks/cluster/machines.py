"""Machines that a recipe may be planned for: `cpu`, or nodes × GPUs of a kind, `4x8:MI300X`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from configs.errors import UserError
from tasks.cluster.devices import Accelerator
from tasks.cluster.placement import Node


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        name: how it is known here.
        vendor: who makes it.
        memory: bytes that its driver reports as its memory.
        peak: operations a second of dense bfloat16 matrix products, by its data sheet.
        ray_type: the `accelerator_type` that Ray gives its node.
    """

    name: str
    vendor: Accelerator
    memory: int
    peak: float
    ray_type: str


def _gib(amount: float) -> int:
    return int(amount * 2**30)


# Memory as `nvidia-smi` and `amd-smi` report it; peaks of the makers' data sheets of SXM and OAM modules, without
# sparsity; labels from ray.util.accelerators. docs/hardware.md has the sources.
GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("H100", "nvidia", _gib(79.6), 989.4e12, "H100"),
        Gpu("H200", "nvidia", _gib(140.4), 989.4e12, "H200"),
        Gpu("B200", "nvidia", _gib(179.1), 2250e12, "B200"),
        Gpu("MI300X", "amd", _gib(192), 1307.4e12, "AMD-Instinct-MI300X-OAM"),
        Gpu("MI325X", "amd", _gib(256), 1307.4e12, "AMD-Instinct-MI325X-OAM"),
        Gpu("MI355X", "amd", _gib(288), 2516.6e12, "AMD-Instinct-MI355X-OAM"),
    )
}


def gpu_of(name: str | None) -> Gpu | None:
    """Return the kind of a GPU by the name that its driver or Ray gives it; None where it is not known here."""
    return next((gpu for gpu in GPUS.values() if name and gpu.name in name), None)


USUAL_MEMORY = 2048 * 2**30
"""Bytes of memory that nodes of eight GPUs are commonly sold with."""


@dataclass(frozen=True)
class Cluster:
    """`count` nodes that are alike; `gpu` is None for one machine without a GPU."""

    count: int
    node: Node
    gpu: Gpu | None

    @property
    def nodes(self) -> list[Node]:
        """Each of them."""
        return [self.node] * self.count

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.count * self.node.gpus

    @property
    def accelerator(self) -> Accelerator:
        """The vendor of its GPUs, or cpu."""
        return self.gpu.vendor if self.gpu else "cpu"


def parse_cluster(text: str) -> Cluster:
    """Read `cpu` or `<nodes>x<GPUs a node>:<kind>`; how many CPUs such nodes have is left open.

    Raises:
        UserError: the text is of neither form, or the kind is not known.
    """
    if text == "cpu":
        return Cluster(1, Node(inf, 0), None)
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*):(\w+)", text)
    if not match:
        raise UserError(f"--cluster {text!r}: give `cpu`, or nodes x GPUs a node : kind, such as 4x8:MI300X")
    nodes, gpus, kind = int(match[1]), int(match[2]), match[3].upper()
    if kind not in GPUS:
        raise UserError(f"--cluster {text!r}: {kind} is not one of {', '.join(GPUS)}")
    return Cluster(nodes, Node(inf, gpus, USUAL_MEMORY), GPUS[kind])
