"""Attention over all sequences at once is attention over each sequence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from tasks.sglang_cpu.attention import Group, attend, group_sequences, padded_width

POSITIONS, KEY_HEADS, SHARED, SIZE = 300, 2, 3, 8
SCALE = SIZE**-0.5


def step(lengths: list[int], new: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A filled KV cache in which each sequence's tokens lie scattered; slot 0 and the unused ones hold NaN."""
    generator = torch.Generator().manual_seed(0)
    slots = 1 + torch.randperm(len(lengths) * POSITIONS, generator=generator)
    req_to_token = slots.view(len(lengths), POSITIONS).to(torch.int32)
    keys, values = torch.full((2, 1 + slots.numel(), KEY_HEADS, SIZE), torch.nan)
    for row, length in zip(req_to_token, lengths, strict=True):
        keys[row[:length]] = torch.randn(length, KEY_HEADS, SIZE, generator=generator)
        values[row[:length]] = torch.randn(length, KEY_HEADS, SIZE, generator=generator)
    query = torch.randn(sum(new), KEY_HEADS * SHARED, SIZE, generator=generator)
    return req_to_token, keys, values, query


def layout(req_to_token: torch.Tensor, lengths: list[int], new: list[int]) -> list[Group]:
    return group_sequences(req_to_token, torch.arange(len(lengths)), torch.tensor(lengths), torch.tensor(new))


def one_by_one(
    req_to_token: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query: torch.Tensor,
    lengths: list[int],
    new: list[int],
) -> torch.Tensor:
    """The same by PyTorch's own grouped attention, a sequence at a time."""
    outputs = []
    for row, length, queries in zip(req_to_token, lengths, query.split(new), strict=True):
        slots = row[:length]
        mask = torch.ones(len(queries), length, dtype=torch.bool).tril(length - len(queries))
        out = scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys[slots].transpose(0, 1)[None],
            values[slots].transpose(0, 1)[None],
            attn_mask=mask,
            scale=SCALE,
            enable_gqa=True,
        )
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize(
    ("lengths", "new"),
    [
        ([1, 70, 9], [1, 1, 1]),  # decode
        ([5, 9, 5], [5, 9, 5]),  # prefill
        ([200, 12, 40, 12], [3, 12, 1, 1]),  # prefill with cached prefixes of all sizes
    ],
)
def test_all_at_once_equals_one_by_one(lengths: list[int], new: list[int]):
    req_to_token, keys, values, query = step(lengths, new)
    output = torch.empty_like(query)
    for group in layout(req_to_token, lengths, new):
        output[group.rows_n] = attend(query[group.rows_n], keys, values, group, SCALE)
    torch.testing.assert_close(output, one_by_one(req_to_token, keys, values, query, lengths, new))


def test_sequences_with_as_many_new_tokens_are_attended_in_one_call():
    req_to_token, *_ = step([5, 9, 7], [2, 1, 2])
    groups = layout(req_to_token, [5, 9, 7], [2, 1, 2])
    assert [group.rows_n.tolist() for group in groups] == [[2], [0, 1, 3, 4]]


@given(st.integers(1, 5000))
def test_a_width_has_room_and_no_cut_that_padding_would_move(tokens: int):
    width = padded_width(tokens)
    assert tokens <= width < tokens + 192
    assert width % 64 == 0
    assert width % 512 == 0 or width % 512 <= 192 or width % 512 >= 384
