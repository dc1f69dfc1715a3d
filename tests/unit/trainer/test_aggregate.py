from math import inf

import pytest
import torch
from torch import Tensor

from trainer.algorithm.aggregate import token_mean


def test_a_masked_minus_infinity_does_not_count():
    assert token_mean(torch.tensor([[-inf, -1.0]]), torch.tensor([[False, True]]), 1).item() == -1.0


def test_nothing_to_train_on_gives_zero():
    assert token_mean(torch.tensor([[3.0]]), torch.tensor([[False]]), 0).item() == 0.0


def test_every_token_weighs_the_same_in_one_batch_and_in_two_micro_batches():
    losses = torch.tensor([[1.0, 1, 0, 0, 0, 0], [3, 3, 3, 3, 3, 3]])
    mask = torch.tensor([[True] * 2 + [False] * 4, [True] * 6])

    # (2 * 1 + 6 * 3) / 8; the mean of the two sequences' means would be 2.
    assert token_mean(losses, mask, 8).item() == 2.5
    assert sum(token_mean(losses[row, None], mask[row, None], 8).item() for row in (0, 1)) == 2.5


def test_the_gradient_is_not_divided_by_the_number_of_micro_batches_again():
    weight = torch.tensor(2.0, requires_grad=True)
    inputs = torch.ones(4, 3)
    mask = torch.ones(4, 3, dtype=torch.bool)

    for row in range(4):
        token_mean(weight * inputs[row, None], mask[row, None], 12).backward()

    assert isinstance(weight.grad, Tensor)
    assert weight.grad.item() == pytest.approx(1.0)  # that of mean(weight * 1) over the batch
