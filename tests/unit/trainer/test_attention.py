from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from configs.errors import UserError
from trainer.batches import blockwise
from trainer.batches.attention import Tree, attend
from trainer.batches.packing import PackedRow, pack

HEADS, KEY_VALUE_HEADS, D = 4, 2, 8

# Two groups whose responses have lengths from 0 to 7, so that buckets have padding, and prompts of different lengths.
SEQUENCES = [([1] * 3, [2] * n) for n in (5, 1, 8, 0)] + [([3] * 6, [4] * n) for n in (2, 7)]


def sees(row: PackedRow, query: int, key: int, window: int | None) -> bool:
    """By walking up the tree, one token at a time."""
    parent = {column: column - 1 for column in range(len(row.input_ids))}
    parent |= {block.own[0]: block.prompt[-1] if block.prompt else -1 for block in row.blocks}
    path = []
    while query >= 0:
        path.append(query)
        query = parent[query]
    return key in path[:window]


def dense(row: PackedRow, window: int | None) -> Tensor:
    columns = range(len(row.input_ids))
    return torch.tensor([[sees(row, query, key, window) for key in columns] for query in columns])


def tree(row: PackedRow) -> Tree:
    return Tree(torch.tensor(row.groups), torch.tensor(row.branches), torch.tensor(row.positions))


def random_qkv(length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(heads, length, D, dtype=torch.float64, generator=generator, requires_grad=True)
        for heads in (HEADS, KEY_VALUE_HEADS, KEY_VALUE_HEADS)
    ]


def results(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Output [L, heads, D], and gradients of a function of it."""
    return [output.detach(), *torch.autograd.grad(output.sin().sum(), inputs)]


WINDOWS = pytest.mark.parametrize("window", [None, 1, 4])


@WINDOWS
def test_buckets_attend_as_the_dense_mask_does(window: int | None):
    row = pack(SEQUENCES)
    qkv = random_qkv(len(row.input_ids))
    expected = scaled_dot_product_attention(*qkv, attn_mask=dense(row, window), scale=0.3, enable_gqa=True)

    actual = blockwise.attend(blockwise.batch_blocks(row.blocks), *qkv, scaling=0.3, window=window)

    for ours, theirs in zip(results(actual, qkv), results(expected.transpose(0, 1), qkv), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 200)), min_size=1, max_size=6),
    window=st.sampled_from([None, 3]),
)
def test_buckets_of_very_unequal_blocks_attend_as_the_dense_mask_does(
    lengths: list[tuple[int, int]], window: int | None
):
    row = pack([([prompt] * prompt, [0] * response) for prompt, response in lengths])
    qkv = random_qkv(len(row.input_ids))
    mask = create_mask(tree(row).visible(window), None, None, *[len(row.input_ids)] * 2, device="cpu")[0, 0]
    expected = scaled_dot_product_attention(*qkv, attn_mask=mask, enable_gqa=True)

    actual = blockwise.attend(blockwise.batch_blocks(row.blocks), *qkv, scaling=None, window=window)

    for ours, theirs in zip(results(actual, qkv), results(expected.transpose(0, 1), qkv), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)


def test_blocks_of_similar_shapes_share_a_call_and_long_ones_are_not_padded_to_the_longest():
    same = pack([([1] * 100, [2] * 65)] * 8)
    unequal = pack([([1] * 100, [2] * 500), ([1] * 100, [2] * 65)])

    assert [len(batch.own) for batch in blockwise.batch_blocks(same.blocks).batches] == [
        1,
        8,
    ]  # the prompt, the responses
    assert [batch.queries for batch in blockwise.batch_blocks(unequal.blocks).batches] == [499, 100, 64]


@WINDOWS
def test_the_mask_function_of_gpus_is_the_tree(window: int | None):
    row = pack(SEQUENCES)
    length = len(row.input_ids)

    mask = create_mask(tree(row).visible(window), None, None, length, length, device="cpu")

    assert torch.equal(mask[0, 0], dense(row, window))


def test_the_block_mask_of_gpus_attends_as_buckets_do():
    row = pack([*SEQUENCES, ([5] * 150, [6] * 40), ([5] * 150, [7] * 90)])  # more than two tiles of 128
    qkv = random_qkv(len(row.input_ids))
    packing = tree(row)
    expected = blockwise.attend(blockwise.batch_blocks(row.blocks), *qkv, scaling=None, window=20)

    output = cast(Any, flex_attention)(
        *[x[None].detach() for x in qkv], block_mask=packing.block_mask(20), enable_gqa=True
    )  # eager

    torch.testing.assert_close(output[0].transpose(0, 1), expected, atol=1e-12, rtol=0)
    assert packing.block_mask(20) is packing.block_mask(20)
    assert packing.block_mask(20) is not packing.block_mask(None)


@pytest.mark.parametrize("option", ["softcap", "s_aux", "position_bias"])
def test_what_a_layer_asks_for_beyond_plain_attention_is_refused_on_a_cpu(option: str):
    row = pack([([1], [2, 3])])
    query, key, value = (x[None] for x in random_qkv(len(row.input_ids)))
    options: Any = {option: 30.0}

    with pytest.raises(UserError, match=f"Identity uses {option} in its attention"):
        attend(nn.Identity(), query, key, value, None, packing=blockwise.batch_blocks(row.blocks), **options)
