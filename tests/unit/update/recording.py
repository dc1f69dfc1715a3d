"""A stand-in for the sender of weights."""

from collections.abc import Iterator, Sequence

import torch

from configs.schema import Recipe
from tasks.server.client import Endpoint, WeightsNotUpdated
from trainer.state.export import Named

TO_ONE = [[Endpoint("http://engine", "key")]]
"""The engines of the one rank."""


class Recording:
    """Stands in for the sender: copies what it is sent, or fails after the first tensor."""

    def __init__(self, recipe: Recipe) -> None:
        self.fails = False
        self.sent: list[tuple[int, dict[str, torch.Tensor]]] = []
        self.closed = False

    def send(self, weights: Iterator[Named], sizes: Sequence[int], version: int, engines: Sequence[Endpoint]) -> None:
        if self.fails:
            next(weights)
            raise WeightsNotUpdated("an engine was lost")
        tensors = {name: tensor.clone() for name, tensor in weights}
        assert list(sizes) == [tensor.nbytes for tensor in tensors.values()]
        self.sent.append((version, tensors))

    def close(self) -> None:
        self.closed = True
