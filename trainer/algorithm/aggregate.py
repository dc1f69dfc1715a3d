"""From losses of tokens to one number for the whole optimizer batch.

Each function gives the share of a micro-batch in that number, and the shares of all micro-batches of all ranks sum up
to it, however the batch was split. Arguments: values [B, T] float; mask [B, T] bool, whose False tokens, infinite and
NaN ones too, don't count; the counts of the *whole* optimizer batch. Each returns a scalar, 0 if nothing is trained.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import AggregationName


@dataclass(frozen=True)
class Normaliser:
    """What sums over an optimizer batch are divided by.

    Attributes:
        tokens: trained tokens over all micro-batches and ranks.
        sequences: sequences with at least one trained token, over all micro-batches and ranks.
        max_response_tokens: tokens after which a response is cut.
    """

    tokens: int
    sequences: int
    max_response_tokens: int


Aggregation = Callable[[Tensor, Tensor, Normaliser], Tensor]


def normaliser(mask: Tensor, max_response_tokens: int) -> Normaliser:
    """Count the trained tokens of an optimizer batch: mask [N, T] bool of all its samples."""
    return Normaliser(int(mask.sum()), int(mask.any(dim=1).sum()), max_response_tokens)


def token_mean(values: Tensor, mask: Tensor, of: Normaliser) -> Tensor:
    """Mean over all trained tokens of the batch (DAPO, arXiv 2503.14476, equation 8): long responses weigh more."""
    return torch.where(mask, values, 0.0).sum() / max(of.tokens, 1)


def sequence_mean_token_mean(values: Tensor, mask: Tensor, of: Normaliser) -> Tensor:
    """Mean over sequences of their token means (GRPO, arXiv 2402.03300, equation 3): a response weighs 1."""
    lengths = mask.sum(dim=1).clamp(min=1)
    return (torch.where(mask, values, 0.0).sum(dim=1) / lengths).sum() / max(of.sequences, 1)


def sequence_mean_token_sum(values: Tensor, mask: Tensor, of: Normaliser) -> Tensor:
    """Mean over sequences of their token sums, over a constant (Dr. GRPO, arXiv 2503.20783, section 3.2).

    The constant is the number of tokens after which a response is cut: no length is favoured.
    """
    return torch.where(mask, values, 0.0).sum() / (max(of.sequences, 1) * of.max_response_tokens)


AGGREGATIONS: dict[AggregationName, Aggregation] = {
    "token_mean": token_mean,
    "sequence_mean_token_mean": sequence_mean_token_mean,
    "sequence_mean_token_sum": sequence_mean_token_sum,
}
