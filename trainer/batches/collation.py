"""How samples become tensors, micro-batches and shares of ranks. Lengths decide, never token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainer.batches.attention import Packing, packing_of
from trainer.batches.packing import PromptResponse, by_prompt, pack, row_tokens


@dataclass(frozen=True)
class Tokens:
    """B sequences, packed into one row of L tokens; N response tokens, T in the longest response.

    Attributes:
        input_ids: [L] int64; see `trainer.batches.packing` for what lies where.
        position_ids: [L] int64; position of each token in its sequence.
        packing: what attention needs to know of the row.
        predictors: [N] int64; columns of the tokens before each response token, one sequence after the other.
        targets: [N] int64; the response tokens.
        response_mask: [B, T] bool; True on the first n columns of a row whose response has n tokens.
    """

    input_ids: Tensor
    position_ids: Tensor
    packing: Packing
    predictors: Tensor
    targets: Tensor
    response_mask: Tensor

    def to_rows(self, values: Tensor) -> Tensor:
        """Put a value of each response token [N] into padded rows [B, T], with 0 on padding."""
        return values.new_zeros(self.response_mask.shape).masked_scatter(self.response_mask, values)


def collate(sequences: Sequence[PromptResponse], device: str = "cpu") -> Tokens:
    """Tensors of sequences; those with the same prompt share it."""
    row = pack(sequences)
    lengths = torch.tensor([len(response) for _, response in sequences], device=device)[:, None]

    def tensor(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return Tokens(
        input_ids=tensor(row.input_ids),
        position_ids=tensor(row.positions),
        packing=packing_of(row, device),
        predictors=tensor(list(chain.from_iterable(row.predictors))),
        targets=tensor(list(chain.from_iterable(response for _, response in sequences))),
        response_mask=torch.arange(int(lengths.max()), device=device) < lengths,
    )


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype, device: str = "cpu", value: float = 0.0) -> Tensor:
    """[rows, longest row] tensor, filled up with `value` on the right."""
    return pad_sequence(
        [torch.tensor(row, dtype=dtype, device=device) for row in rows], batch_first=True, padding_value=value
    )


def rank_shares(sequences: Sequence[PromptResponse], ranks: int) -> list[list[int]]:
    """Indices of each rank's sequences: one long row of all groups is cut into equal pieces.

    A rank computes at most total / ranks + 2 × longest sequence tokens. Only a group that lies on a cut is split.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    groups = by_prompt(sequences)
    total = sum(len(sequences[group[0]][0]) + sum(row_tokens(sequences[i][1]) for i in group) for group in groups)
    start = 0
    for group in groups:
        start += len(sequences[group[0]][0])
        for index in group:
            shares[min(start * ranks // total, ranks - 1)].append(index)
            start += row_tokens(sequences[index][1])
    return shares


def micro_batches(sequences: Sequence[PromptResponse], token_budget: int) -> list[list[int]]:
    """Indices of the sequences of each micro-batch, whose row has at most `token_budget` tokens.

    A group is split only if it alone is over budget; its prompt is then repeated. A sequence that is over budget is
    alone. The largest parts are placed first, each where there is room (first fit decreasing).
    """
    parts = [
        part for group in by_prompt(sequences) for part in _parts(sequences, group, token_budget)
    ]  # (tokens, indices)
    batches: list[list[int]] = []
    room: list[int] = []
    for tokens, part in sorted(parts, key=lambda part: -part[0]):
        place = next((index for index, free in enumerate(room) if tokens <= free), None)
        if place is None:
            batches.append(part)
            room.append(token_budget - tokens)
        else:
            batches[place] += part
            room[place] -= tokens
    return batches


def _parts(sequences: Sequence[PromptResponse], group: list[int], token_budget: int) -> list[tuple[int, list[int]]]:
    """Split a group into as few runs of neighbours as the budget asks for; each with its number of tokens."""
    prompt_tokens = len(sequences[group[0]][0])
    parts: list[tuple[int, list[int]]] = []
    for index in group:
        own = row_tokens(sequences[index][1])
        if parts and parts[-1][0] + own <= token_budget:
            tokens, part = parts.pop()
            parts.append((tokens + own, [*part, index]))
        else:
            parts.append((prompt_tokens + own, [index]))
    return parts
