"""The weights as an engine takes them from memory: those that `policy.save` would write, under the same names.

They come layer by layer, gathered from the ranks tensor by tensor, so that no process ever holds a second model.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import cast

import torch
from safetensors import safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.core_model_loading import revert_weight_conversion

from configs.learner import Lora
from trainer.model import lora
from trainer.model.policy import Policy

Named = tuple[str, Tensor]
_LAYER = re.compile(r"(?:[^.]+\.)*?\d+\.")


class IncompleteExport(RuntimeError):
    """What would be sent is not what a weights folder holds."""


@dataclass(frozen=True)
class Export:
    """A policy's weights, on their way out.

    Attributes:
        policy: where they are; sharded or not.
        adapters: settings of the adapters that are merged into them, if there are some.
    """

    policy: Policy
    adapters: Lora | None

    def tensors(self) -> Iterator[Named]:
        """Yield the full tensors, detached. All ranks must call it and iterate to the end.

        With adapters they are on the CPU, where `policy.save` merges too: the same sums give the same bits.
        """
        return self._named(lambda tensor: _gathered(tensor).cpu() if self.adapters else _gathered(tensor))

    def described(self) -> list[Named]:
        """Return what `tensors` will yield, on the meta device: names, shapes and dtypes without content."""
        return list(self._named(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")))

    def _named(self, take: Callable[[Tensor], Tensor]) -> Iterator[Named]:
        model = self.policy.model
        # Of tied weights one is sent: an engine ties them itself.
        state = [named for named in model.state_dict().items() if named[0] not in model.all_tied_weights_keys]
        for _, part in groupby(state, key=lambda named: _layer(named[0])):
            tensors = {name: take(value) for name, value in part}
            if self.adapters and any(".lora_" in name for name in tensors):
                tensors = lora.merged(tensors, self.adapters.alpha / self.adapters.rank)
            yield from cast(dict[str, Tensor], revert_weight_conversion(model, tensors)).items()


def check_complete(described: Sequence[Named], folder: Path) -> None:
    """Compare the names and shapes that will be sent with those of a weights folder that `policy.save` wrote.

    Raises:
        IncompleteExport: one is missing, too many, of another shape, or there twice.
    """
    stored = {
        name: list(file.get_slice(name).get_shape())
        for path in folder.glob("*.safetensors")
        for file in [safe_open(path, framework="pt")]
        for name in file.keys()  # noqa: SIM118 - it is no mapping
    }
    sent = {name: list(tensor.shape) for name, tensor in described}
    wrong = sorted(name for name in stored.keys() | sent.keys() if stored.get(name) != sent.get(name))
    if wrong or len(sent) < len(described):
        raise IncompleteExport(
            f"{len(sent)} weights of {len(described)} tensors would be sent, {folder} has {len(stored)}; "
            f"{len(wrong)} of them differ: {', '.join(wrong[:3])}. Set weight_sync.via to disk for this architecture"
        )


def buckets(sizes: Sequence[int], limit: int) -> list[int]:
    """Split a sequence of tensors into runs of at most `limit` bytes, or of one tensor where that is larger.

    Args:
        sizes: bytes of each tensor, in order.
        limit: bytes.

    Returns:
        How many tensors each run has, in order.
    """
    counts: list[int] = []
    filled = limit
    for size in sizes:
        if not counts or filled + size > limit:
            counts.append(0)
            filled = 0
        counts[-1] += 1
        filled += size
    return counts


def _gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _layer(name: str) -> str:
    """The layer that a weight belongs to, such as `model.layers.3.`; empty outside the layers.

    The conversion of weights to their stored form may need a whole layer.
    """
    found = _LAYER.match(name)
    return found[0] if found else ""
