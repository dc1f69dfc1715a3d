"""How samples become padded tensors, micro-batches and shares of ranks. Lengths decide, never token ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

PAD_ID = 0
"""Fills the right end of rows. Any id would do: causal attention never looks right, and masks come from lengths."""


@dataclass(frozen=True)
class Tokens:
    """B right-padded sequences of at most L tokens, with responses of at most T tokens.

    Attributes:
        input_ids: [B, L] int64; prompt, response, padding.
        is_response: [B, L] bool; True on response tokens.
        response_mask: [B, T] bool; True on the first n columns of a row whose response has n tokens.
    """

    input_ids: Tensor
    is_response: Tensor
    response_mask: Tensor


def collate(sequences: Sequence[tuple[list[int], list[int]]], device: str = "cpu") -> Tokens:
    """Tensors of (prompt_ids, response_ids) pairs."""
    input_ids = pad([prompt + response for prompt, response in sequences], torch.int64, device, PAD_ID)
    prompt_lengths = torch.tensor([len(prompt) for prompt, _ in sequences], device=device)[:, None]
    response_lengths = torch.tensor([len(response) for _, response in sequences], device=device)[:, None]
    column = torch.arange(input_ids.shape[1], device=device)
    return Tokens(
        input_ids=input_ids,
        is_response=(column >= prompt_lengths) & (column < prompt_lengths + response_lengths),
        response_mask=torch.arange(int(response_lengths.max()), device=device) < response_lengths,
    )


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype, device: str = "cpu", value: float = 0.0) -> Tensor:
    """[rows, longest row] tensor, filled up with `value` on the right."""
    return pad_sequence(
        [torch.tensor(row, dtype=dtype, device=device) for row in rows], batch_first=True, padding_value=value
    )


def by_length(lengths: Sequence[int]) -> list[int]:
    """Indices of sequences, the longest first; equal ones in their order."""
    return sorted(range(len(lengths)), key=lambda index: -lengths[index])


def rank_shares(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Indices of each rank's sequences; the ranks' token counts differ by no more than the longest sequence.

    Dealing out a sorted list makes the differences telescope.
    """
    order = by_length(lengths)
    return [order[rank::ranks] for rank in range(ranks)]


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of each micro-batch, sorted by length so that little is padded.

    A micro-batch holds at most `token_budget` tokens, padding included; a sequence that is longer is alone in its one.
    """
    batches: list[list[int]] = []
    for index in by_length(lengths):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
