"""The ranks that train together. One process alone needs no process group and is rank 0 of 1."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor


def count() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own() -> int:
    """Number of this rank, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def wait_for_all() -> None:
    """Return when every rank got here."""
    if dist.is_initialized():
        dist.barrier()


def reduce(values: Mapping[str, float], device: str, *, largest: bool = False) -> dict[str, float]:
    """Sum, or maximum, of each value over the ranks. All ranks must pass the same names in the same order."""
    if not dist.is_initialized():
        return dict(values)
    packed = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
    dist.all_reduce(packed, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return dict(zip(values, packed.tolist(), strict=True))


def total(values: Tensor, device: str) -> Tensor:
    """Sum of a CPU tensor over the ranks, which all pass one of the same shape; communicated on `device`."""
    if not dist.is_initialized():
        return values
    summed = values.to(device)
    dist.all_reduce(summed)
    return summed.cpu()
