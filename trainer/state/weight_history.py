"""Older weights versions: copies on the host of one rank's shards."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


class WeightHistory:
    """The last versions of some weights.

    Args:
        weights: the live weights, after any sharding.
        count: versions that are kept.
    """

    def __init__(self, weights: Sequence[Tensor], count: int) -> None:
        self._weights = weights
        self._count = count
        self._copies: dict[int, list[Tensor]] = {}

    def versions(self) -> list[int]:
        """Return the versions that are kept, in order."""
        return sorted(self._copies)

    def keep(self, version: int) -> None:
        """Copy the weights of a version before they change, and drop copies that are too old."""
        recent = range(version + 1 - self._count, version)
        self._copies = {old: copies for old, copies in self._copies.items() if old in recent}
        if self._count:
            self._copies[version] = [_own(weight).to("cpu", copy=True) for weight in self._weights]

    @contextmanager
    def brought_back(self, version: int) -> Iterator[None]:
        """Within the block the weights are those of a version that is kept.

        They are swapped with its copy, tensor by tensor: there is no memory for both. All ranks must do it before they
        gather.
        """
        self._exchange(version)
        try:
            yield
        finally:
            self._exchange(version)

    @torch.no_grad()
    def _exchange(self, version: int) -> None:
        for weight, copy in zip(self._weights, self._copies[version], strict=True):
            own = _own(weight)
            present = own.to("cpu", copy=True)
            own.copy_(copy)
            copy.copy_(present)


def _own(weight: Tensor) -> Tensor:
    """What this rank has of a weight, in the same memory."""
    live = weight.detach()
    return live.to_local() if isinstance(live, DTensor) else live
