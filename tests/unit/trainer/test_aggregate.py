from math import inf

import pytest
import torch
from torch import Tensor

from configs.algorithm import AggregationName
from trainer.algorithm.aggregate import (
    AGGREGATIONS,
    Normaliser,
    normaliser,
    sequence_mean_token_mean,
    sequence_mean_token_sum,
    token_mean,
)

EVERY = pytest.mark.parametrize("name", sorted(AGGREGATIONS))
# Sequence A: 2 tokens of loss 1; B: 6 tokens of loss 3.
LOSSES = torch.tensor([[1.0, 1, 0, 0, 0, 0], [3, 3, 3, 3, 3, 3]])
MASK = torch.tensor([[True] * 2 + [False] * 4, [True] * 6])


def test_the_normaliser_counts_tokens_and_sequences_that_are_trained():
    mask = torch.cat([MASK, torch.zeros(1, 6, dtype=torch.bool)])

    assert normaliser(mask, 16) == Normaliser(tokens=8, sequences=2, max_response_tokens=16)


def test_each_aggregation_of_a_short_and_a_long_sequence():
    counts = normaliser(MASK, 16)

    assert token_mean(LOSSES, MASK, counts).item() == 2.5  # (2 * 1 + 6 * 3) / 8
    assert sequence_mean_token_mean(LOSSES, MASK, counts).item() == 2.0  # (1 + 3) / 2
    assert sequence_mean_token_sum(LOSSES, MASK, counts).item() == 0.625  # (2 + 18) / 2 / 16


@EVERY
def test_two_micro_batches_add_up_to_the_batch(name: AggregationName):
    counts = normaliser(MASK, 16)
    aggregate = AGGREGATIONS[name]

    parts = sum(aggregate(LOSSES[row, None], MASK[row, None], counts).item() for row in (0, 1))

    assert parts == aggregate(LOSSES, MASK, counts).item()


@EVERY
def test_a_micro_batch_that_is_all_masked_changes_nothing(name: AggregationName):
    counts = normaliser(MASK, 16)
    masked = AGGREGATIONS[name](torch.full_like(LOSSES, inf), torch.zeros_like(MASK), counts)

    assert masked.item() == 0.0


@EVERY
def test_a_masked_minus_infinity_does_not_count(name: AggregationName):
    mask = torch.tensor([[False, True]])

    assert AGGREGATIONS[name](torch.tensor([[-inf, -1.0]]), mask, normaliser(mask, 1)).item() == -1.0


@EVERY
def test_nothing_to_train_on_gives_zero(name: AggregationName):
    mask = torch.tensor([[False]])

    assert AGGREGATIONS[name](torch.tensor([[3.0]]), mask, normaliser(mask, 1)).item() == 0.0


@EVERY
def test_the_gradient_is_not_divided_by_the_number_of_micro_batches_again(name: AggregationName):
    inputs = torch.ones(4, 3)
    mask = torch.ones(4, 3, dtype=torch.bool)
    counts = normaliser(mask, 3)

    def gradient(size: int) -> float:
        weight = torch.tensor(2.0, requires_grad=True)
        for rows in range(0, 4, size):
            AGGREGATIONS[name](weight * inputs[rows : rows + size], mask[rows : rows + size], counts).backward()
        assert isinstance(weight.grad, Tensor)
        return weight.grad.item()

    assert gradient(size=1) == pytest.approx(gradient(size=4))
    assert gradient(size=4) == pytest.approx(1.0)  # that of mean(weight * 1) over the batch
