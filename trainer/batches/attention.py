"""Attention over packed rows, as an attention function of transformers: any decoder that takes one can be packed.

On a CPU the row's blocks are computed in batches of similar shapes (`trainer.batches.blockwise`); elsewhere the tree
mask goes to FlexAttention, which skips the tiles of the [L, L] square that nobody sees (Dong et al., arXiv 2412.05496).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import AttentionInterface
from transformers.integrations.flex_attention import flex_attention_forward

from configs.errors import UserError
from trainer.batches import blockwise
from trainer.batches.packing import PackedRow

NAME = "rl_post_packed"
"""The name of this attention function in transformers."""

Visible = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query, key) indices → whether the query sees the key, as FlexAttention wants it."""


@dataclass(frozen=True, eq=False)
class Tree:
    """What FlexAttention needs of a packed row of L tokens.

    Attributes:
        groups: [L] int64; see `trainer.batches.packing.Row`.
        branches: [L] int64.
        positions: [L] int64.
    """

    groups: Tensor
    branches: Tensor
    positions: Tensor
    _masks: dict[int | None, BlockMask] = field(default_factory=dict)

    def visible(self, window: int | None) -> Visible:
        """Which token sees which: its prompt and its own response up to itself, at most `window` positions back."""

        def mask(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same_group = self.groups[query] == self.groups[key]
            on_the_way = (self.branches[key] == -1) | (self.branches[key] == self.branches[query])
            seen = (query >= key) & same_group & on_the_way
            return seen if window is None else seen & (self.positions[query] - self.positions[key] < window)

        return mask

    def block_mask(self, window: int | None) -> BlockMask:
        """Make the mask once for all layers with the same window."""
        if window not in self._masks:
            length, device = len(self.groups), self.groups.device
            self._masks[window] = create_block_mask(
                self.visible(window), None, None, length, length, device, _compile=device.type != "cpu"
            )
        return self._masks[window]


Packing = blockwise.BlockBatches | Tree


def packing_of(row: PackedRow, device: str) -> Packing:
    """What attention on this device needs to know of a row."""
    if torch.device(device).type == "cpu":
        return blockwise.batch_blocks(row.blocks)
    groups, branches, positions = (
        torch.tensor(column, device=device) for column in (row.groups, row.branches, row.positions)
    )
    return Tree(groups, branches, positions)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    packing: Packing,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Attention of a packed row; the signature is that of transformers' attention functions.

    Args:
        module: the attention layer; in evaluation mode, so that nothing is dropped out.
        query: [1, heads, L, D].
        key: [1, key-value heads, L, D].
        value: [1, key-value heads, L, D].
        attention_mask: none, since `packing` says it all.
        packing: the row's, given to the model's forward pass, which hands it on.
        scaling: factor of query·key; None means 1 / sqrt(D).
        sliding_window: positions that a token looks back, itself included; None means all.
        options: what else the architecture's layer asks for.

    Returns:
        [1, L, heads, D], and no attention weights.

    Raises:
        UserError: if the layer asks for what the CPU's attention can't do.
    """
    if isinstance(packing, Tree):
        mask = packing.block_mask(sliding_window)
        output, _ = flex_attention_forward(module, query, key, value, mask, scaling=scaling, **options)  # pyright: ignore[reportArgumentType]
        return output, None
    unknown = [name for name in ("softcap", "s_aux", "position_bias") if options.get(name) is not None]
    if unknown:
        raise UserError(
            f"{type(module).__name__} uses {', '.join(unknown)} in its attention, which the learner supports on GPUs "
            "only; choose another architecture"
        )
    return blockwise.attend(packing, query[0], key[0], value[0], scaling, sliding_window)[None], None


AttentionInterface.register(NAME, attend)
