"""How the ranks share the forward passes over many samples."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer import distributed
from trainer.batches.collation import Tokens, collate, micro_batches, rank_shares
from trainer.batches.packing import PromptResponse

NOTHING: list[PromptResponse] = [([0], [0])]
"""What a rank with less work computes, so that all ranks make equally many passes."""


def own_micro_batches(sequences: Sequence[PromptResponse], rows: Sequence[int], token_budget: int) -> list[list[int]]:
    """Return the rows of each of this rank's micro-batches, out of `rows`.

    Every rank gets equally many, at least one, because all must take part in each pass. Some may be empty.
    """
    chosen = [sequences[row] for row in rows]
    plans = [
        [[rows[share[i]] for i in part] for part in micro_batches([chosen[i] for i in share], token_budget)]
        for share in rank_shares(chosen, distributed.world_size())
    ]
    own = plans[distributed.rank()]
    return own + [[]] * (max(1, *(len(plan) for plan in plans)) - len(own))


def collate_rows(sequences: Sequence[PromptResponse], rows: Sequence[int], device: str) -> Tokens:
    """The rows of a micro-batch; an empty one gets a sequence that is not trained on."""
    return collate([sequences[row] for row in rows] or NOTHING, device)


def part_of(values: Tensor, rows: Sequence[int], tokens: Tokens) -> Tensor:
    """A micro-batch's part [B, T] of the values of all samples [N, longest response], zeros for an empty one."""
    if not rows:
        return torch.zeros_like(tokens.response_mask, dtype=values.dtype)
    return values[list(rows), : tokens.response_mask.shape[1]].to(tokens.response_mask.device)


@torch.no_grad()
def evaluate(
    model: Callable[[Tokens], Tensor], sequences: Sequence[PromptResponse], token_budget: int, device: str
) -> Tensor:
    """What a model gives for each response token of N sequences, without gradient.

    Args:
        model: from tokens to [B, T].
        sequences: all of them; each rank computes its share.
        token_budget: of a forward pass.
        device: that of the model.

    Returns:
        [N, longest response] float32 on the CPU, 0 on padding, the same on all ranks.
    """
    values = torch.zeros(len(sequences), max(len(response) for _, response in sequences))
    for rows in own_micro_batches(sequences, range(len(sequences)), token_budget):
        tokens = collate_rows(sequences, rows, device)
        found = model(tokens)
        if rows:
            values[rows, : found.shape[1]] = found.cpu()
    return distributed.all_reduce(values, device)
