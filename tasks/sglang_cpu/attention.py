"""Attention on a CPU: all sequences of a step in a few calls of PyTorch's fused kernel, in batch-invariant shapes.

PyTorch's fused attention multiplies matrices with MKL, so two things are kept in hand for bit-equal results whatever
runs beside a sequence, found by measurement and held by tests (see also cpu_batch_invariant):

- Rows. The query heads that share a key head are the rows of one product, padded to a multiple of 4 heads.
- Width. MKL cuts a sum of 193 to 383 products in halves, and a longer one in blocks of 192 from the front. PyTorch
  walks the keys in blocks of 512. `padded_width` avoids the widths where padding would move a cut.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

HEAD_MULTIPLE = 4
WIDTH_MULTIPLE = 64


class Group(NamedTuple):
    """Sequences that bring equally many new tokens (t) to a step; attended in one call."""

    rows_n: torch.Tensor  # int64 [b * t], where the new tokens stand in the step's flat list of tokens
    slots_bl: torch.Tensor  # int64 [b * l], where the KV cache holds each sequence's tokens; padding repeats slot 0
    mask_btl: torch.Tensor  # bool [b, t, l], which tokens a new token sees


def padded_width(tokens: int) -> int:
    """Round a number of keys up to a width whose sums MKL cuts at the same places as those of any larger width.

    >>> [padded_width(n) for n in (1, 65, 193, 512, 513, 705)]
    [64, 128, 384, 512, 576, 896]
    """
    width = -(-tokens // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
    blocks, rest = divmod(width, 512)
    return blocks * 512 + (384 if 192 < rest < 384 else rest)


def group_sequences(
    req_to_token: torch.Tensor, requests_b: torch.Tensor, seq_lens_b: torch.Tensor, new_lens_b: torch.Tensor
) -> list[Group]:
    """Sort a step's sequences by their number of new tokens.

    Args:
        req_to_token: integers [requests, positions], the KV slot of each token of each request.
        requests_b: int64 [batch], rows of req_to_token.
        seq_lens_b: int64 [batch], tokens of each sequence, the new ones included.
        new_lens_b: int64 [batch], new tokens of each sequence; they stand one after the other in the step's list.
    """
    starts_b = new_lens_b.cumsum(0) - new_lens_b
    groups = []
    for new in new_lens_b.unique().tolist():
        members = (new_lens_b == new).nonzero().squeeze(1)
        lens_b = seq_lens_b[members]
        positions_l = torch.arange(padded_width(int(lens_b.max())))
        within_l = positions_l.clamp(max=req_to_token.shape[1] - 1)
        slots_bl = req_to_token[requests_b[members]][:, within_l]
        # A slot past a sequence's end may hold anything, even a NaN that the mask would not stop.
        slots_bl = slots_bl.where(positions_l < lens_b[:, None], slots_bl[:, :1])
        seen_bt = lens_b[:, None] - new + 1 + torch.arange(new)
        groups.append(
            Group(
                rows_n=(starts_b[members, None] + torch.arange(new)).flatten(),
                slots_bl=slots_bl.flatten().long(),
                mask_btl=positions_l < seen_bt[:, :, None],
            )
        )
    return groups


def attend(
    query_nhd: torch.Tensor, keys_skd: torch.Tensor, values_skd: torch.Tensor, group: Group, scale: float
) -> torch.Tensor:
    """Attend from a group's new tokens to all that they may see.

    Args:
        query_nhd: [b * t, query heads, head size], the group's rows.
        keys_skd: [slots, key heads, head size], the KV cache of the layer.
        values_skd: [slots, key heads, head size].
        group: The sequences.
        scale: Factor of the scores.

    Returns:
        [b * t, query heads, head size].
    """
    b, t, width = group.mask_btl.shape
    kv_heads, size = keys_skd.shape[1:]
    shared = query_nhd.shape[1] // kv_heads
    padded = -(-shared // HEAD_MULTIPLE) * HEAD_MULTIPLE

    query = query_nhd.view(b, t, kv_heads, shared, size).transpose(1, 2)
    query = pad(query, (0, 0, 0, padded - shared)).reshape(b, kv_heads, t * padded, size)
    mask = group.mask_btl.repeat_interleave(padded if t > 1 else 1, dim=1)[:, None]
    # index_select on rows is several times faster than indexing.
    keys, values = (
        cache.flatten(1).index_select(0, group.slots_bl).view(b, width, kv_heads, size).transpose(1, 2)
        for cache in (keys_skd, values_skd)
    )
    out = scaled_dot_product_attention(query, keys.to(query.dtype), values.to(query.dtype), attn_mask=mask, scale=scale)
    return out.view(b, kv_heads, t, padded, size)[:, :, :, :shared].transpose(1, 2).reshape(query_nhd.shape)
