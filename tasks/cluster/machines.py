"""Machines that a recipe may be planned for: `cpu`, or nodes × GPUs of a kind, `4x8:MI300X`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from configs.errors import UserError
from tasks.cluster.devices import Accelerator


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        vendor: who makes it.
        memory: bytes that its driver reports as its memory.
        peak: operations a second of dense bfloat16 matrix products, by its data sheet.
        ray_type: the `accelerator_type` that Ray gives its node.
    """

    vendor: Accelerator
    memory: int
    peak: float
    ray_type: str


def _gib(amount: float) -> int:
    return int(amount * 2**30)


# Memory as `nvidia-smi` and `amd-smi` report it; peaks of the makers' data sheets of SXM and OAM modules, without
# sparsity; labels from ray.util.accelerators. docs/hardware.md has the sources.
GPUS: Mapping[str, Gpu] = {
    "H100": Gpu("nvidia", _gib(79.6), 989.4e12, "H100"),
    "H200": Gpu("nvidia", _gib(140.4), 989.4e12, "H200"),
    "B200": Gpu("nvidia", _gib(179.1), 2250e12, "B200"),
    "MI300X": Gpu("amd", _gib(192), 1307.4e12, "AMD-Instinct-MI300X-OAM"),
    "MI325X": Gpu("amd", _gib(256), 1307.4e12, "AMD-Instinct-MI325X-OAM"),
    "MI355X": Gpu("amd", _gib(288), 2516.6e12, "AMD-Instinct-MI355X-OAM"),
}


def gpu_kind(name: str) -> str | None:
    """Return the kind of a GPU by the name that its driver gives it, or None if it is not known here."""
    return next((kind for kind in GPUS if kind in name), None)


@dataclass(frozen=True)
class Cluster:
    """`nodes` machines with `gpus` GPUs each, all of one kind; without a kind, one machine without a GPU."""

    nodes: int
    gpus: int
    kind: str | None

    @property
    def accelerator(self) -> Accelerator:
        """The vendor of its GPUs, or cpu."""
        return GPUS[self.kind].vendor if self.kind else "cpu"


def parse_cluster(text: str) -> Cluster:
    """Read `cpu` or `<nodes>x<GPUs a node>:<kind>`.

    Raises:
        UserError: the text is of neither form, or the kind is not known.
    """
    if text == "cpu":
        return Cluster(1, 0, None)
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*):(\w+)", text)
    if not match:
        raise UserError(f"--cluster {text!r}: give `cpu`, or nodes x GPUs a node : kind, such as 4x8:MI300X")
    nodes, gpus, kind = int(match[1]), int(match[2]), match[3].upper()
    if kind not in GPUS:
        raise UserError(f"--cluster {text!r}: {kind} is not one of {', '.join(GPUS)}")
    return Cluster(nodes, gpus, kind)
