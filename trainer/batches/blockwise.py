"""Attention over packed rows on a CPU: blocks of similar shapes are computed together, padded to the largest of them.

Pieces of the row are joined by split and cat alone, because their backward passes only slice and add. Gathering by
index would be as short, but on a CPU its backward pass costs more than the attention itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from trainer.batches.packing import Block

PAIRS_PER_CALL = 2048
"""Query-key pairs of a head that take about as long as one more call: padding may cost this much to save a call."""


@dataclass(frozen=True)
class BlockBatch:
    """S blocks of at most Q queries and K keys. Padding is at the right end of both, where causal attention hides it.

    Attributes:
        own: [S] indices of the blocks.
        prompts: [S] index of each one's prompt block; None where it is a prompt itself.
        queries: Q.
        keys: K.
        offsets: [S] int64, or [1] where they are all the same: keys before the first query. Query j sees the keys up
            to offset + j.
    """

    own: list[int]
    prompts: list[int | None]
    queries: int
    keys: int
    offsets: Tensor

    def mask(self, window: int | None) -> Tensor:
        """[S or 1, 1, Q, K] bool: True where a query sees a key. Padding sees a key too, so that it is not NaN."""
        queries = (self.offsets[:, None] + torch.arange(self.queries)).clamp(max=self.keys - 1)
        distance = (queries[:, :, None] - torch.arange(self.keys))[:, None]
        return distance >= 0 if window is None else (distance >= 0) & (distance < window)


@dataclass(frozen=True)
class BlockBatches:
    """A row's blocks.

    Attributes:
        lengths: tokens of each block, from left to right.
        batches: of those blocks, in any order.
    """

    lengths: list[int]
    batches: list[BlockBatch]


def batch_blocks(blocks: Sequence[Block]) -> BlockBatches:
    """Put blocks together, the largest first, as long as padding costs less than another call."""
    shapes = [(len(block.own), len(block.prompt) + len(block.own)) for block in blocks]
    shares: list[list[int]] = []
    size = height = width = 0  # of the last share: blocks × queries × keys
    for index in sorted(range(len(blocks)), key=lambda index: shapes[index], reverse=True):
        queries, keys = shapes[index]
        grown = (size + 1) * height * max(width, keys)
        if shares and grown <= size * height * width + queries * keys + PAIRS_PER_CALL:
            shares[-1].append(index)
            size, width = size + 1, max(width, keys)
        else:
            shares.append([index])
            size, height, width = 1, queries, keys
    return BlockBatches([queries for queries, _ in shapes], [_batch(blocks, share) for share in shares])


def _batch(blocks: Sequence[Block], own: list[int]) -> BlockBatch:
    at = {block.own: index for index, block in enumerate(blocks)}
    offsets = [len(blocks[index].prompt) for index in own]
    return BlockBatch(
        own=own,
        prompts=[at.get(blocks[index].prompt) for index in own],
        queries=max(len(blocks[index].own) for index in own),
        keys=max(len(blocks[index].prompt) + len(blocks[index].own) for index in own),
        offsets=torch.tensor(offsets[:1] if len(set(offsets)) == 1 else offsets),
    )


def attend(
    row: BlockBatches, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """Attention of each token over what it sees.

    The joined tensors of a batch are not kept for the backward pass, which joins them again: they repeat a prompt's
    keys for each of its responses.

    Args:
        row: the row's blocks.
        query: [heads, L, D].
        key: [key-value heads, L, D].
        value: [key-value heads, L, D].
        scaling: factor of query·key; None means 1 / sqrt(D).
        window: positions that a token looks back, itself included; None means all.

    Returns:
        [L, heads, D].
    """
    queries, keys, values = (tokens.transpose(0, 1).split(row.lengths) for tokens in (query, key, value))
    outputs: dict[int, Tensor] = {}  # [tokens of the block, heads, D] of each block
    for batch in row.batches:
        parts = checkpoint(
            _attend, batch, queries, keys, values, scaling, window, use_reentrant=False, preserve_rng_state=False
        )
        outputs.update(zip(batch.own, parts, strict=True))
    return torch.cat([outputs[index] for index in range(len(row.lengths))])


def _attend(
    batch: BlockBatch,
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    scaling: float | None,
    window: int | None,
) -> list[Tensor]:
    """Outputs of a batch's blocks, out of the queries, keys and values of all blocks."""
    output = scaled_dot_product_attention(
        _padded([[queries[own]] for own in batch.own], batch.queries),
        _padded(_prompt_and_own(batch, keys), batch.keys),
        _padded(_prompt_and_own(batch, values), batch.keys),
        attn_mask=batch.mask(window),
        scale=scaling,
        enable_gqa=True,
    )  # [S, heads, Q, D]
    lengths = [len(queries[own]) for own in batch.own]
    cuts = chain.from_iterable((length, batch.queries - length) for length in lengths)
    return list(output.transpose(1, 2).flatten(0, 1).split(list(cuts))[::2])


def _prompt_and_own(batch: BlockBatch, pieces: Sequence[Tensor]) -> list[list[Tensor]]:
    return [
        [pieces[own]] if prompt is None else [pieces[prompt], pieces[own]]
        for prompt, own in zip(batch.prompts, batch.own, strict=True)
    ]


def _padded(sequences: Sequence[Sequence[Tensor]], length: int) -> Tensor:
    """[S, heads, length, D] of S sequences, each a chain of pieces [tokens, heads, D], with zeros on the right."""
    zeros = sequences[0][0].new_zeros(length, *sequences[0][0].shape[1:])
    filled = [[*pieces, zeros[sum(map(len, pieces)) :]] for pieces in sequences]
    return torch.cat(list(chain.from_iterable(filled))).unflatten(0, (len(sequences), length)).transpose(1, 2)
