from math import inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer.algorithm.kl import k1, k2, k3

DIFFERENCES = [0.0, 0.1, -0.1, 1.0, -1.0]  # reference log-prob - policy log-prob


def estimate(estimator, differences: list[float]) -> list[float]:
    reference = torch.tensor([differences])
    return estimator(torch.zeros_like(reference), reference, torch.ones_like(reference, dtype=torch.bool))[0].tolist()


def test_k1_is_the_negative_difference():
    assert estimate(k1, DIFFERENCES) == pytest.approx([0, -0.1, 0.1, -1, 1])


def test_k2_is_half_of_the_squared_difference():
    assert estimate(k2, DIFFERENCES) == pytest.approx([0, 0.005, 0.005, 0.5, 0.5])


def test_k3_is_exp_d_minus_d_minus_1():
    assert estimate(k3, DIFFERENCES) == pytest.approx([0, 0.005171, 0.004837, 0.718282, 0.367879], abs=1e-6)


@given(st.floats(-100, 100, width=32))
def test_k3_is_finite_and_never_negative_but_for_rounding(difference: float):
    (value,) = estimate(k3, [difference])

    assert -1e-6 <= value < inf


@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_a_masked_token_has_neither_value_nor_gradient(estimator):
    policy = torch.tensor([[-inf, -1.0]], requires_grad=True)

    values = estimator(policy, torch.tensor([[-inf, -2.0]]), torch.tensor([[False, True]]))
    values.sum().backward()

    assert isinstance(policy.grad, Tensor)
    assert values[0, 0].item() == 0
    assert policy.grad[0, 0].item() == 0
    assert policy.grad[0, 1].item() > 0  # minimising it lowers a log-prob that is above the reference's
