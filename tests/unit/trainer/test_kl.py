import math
from math import inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer.algorithm.kl import Estimator, k1, k2, k3, unbiased

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


def gradient_of_mean_kl(estimator: Estimator, weighted: bool, behaviour: Tensor) -> Tensor:
    """Gradient with respect to the logits of the estimate's mean over samples of `behaviour`, exactly: all 4 tokens."""
    logits = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log()[None]
    policy = logits.log_softmax(0)[None]
    mask = torch.ones(1, 4, dtype=torch.bool)
    kl = estimator(policy, reference, mask)
    if weighted:
        kl = unbiased("k1" if estimator is k1 else "k3", policy, reference, behaviour.log()[None], mask)
    (behaviour * kl[0]).sum().backward()
    assert isinstance(logits.grad, Tensor)
    return logits.grad


def gradient_of_kl() -> Tensor:
    logits = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log()
    policy = logits.log_softmax(0)
    (policy.exp() * (policy - reference)).sum().backward()
    assert isinstance(logits.grad, Tensor)
    return logits.grad


ON_POLICY = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64).softmax(0)
STALE = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


@pytest.mark.parametrize("behaviour", [ON_POLICY, STALE])
@pytest.mark.parametrize("estimator", [k1, k3])
def test_the_unbiased_option_has_the_gradient_of_the_kl_for_stale_samples_too(estimator, behaviour: Tensor):
    torch.testing.assert_close(gradient_of_mean_kl(estimator, True, behaviour), gradient_of_kl())


def test_without_it_only_k2_has_that_gradient_and_only_on_policy():
    torch.testing.assert_close(gradient_of_mean_kl(k2, False, ON_POLICY), gradient_of_kl())
    assert not torch.allclose(gradient_of_mean_kl(k3, False, ON_POLICY), gradient_of_kl(), atol=1e-3)
    assert not torch.allclose(gradient_of_mean_kl(k2, False, STALE), gradient_of_kl(), atol=1e-3)
    # k1 pushes nowhere, which is why the recipe refuses it in the loss.
    torch.testing.assert_close(gradient_of_mean_kl(k1, False, ON_POLICY), torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("policy", "behaviour", "reference"),
    [
        (-25.0, -25.0, 0.0),
        (-26.0, -15.0, -1.0),
        (-19.9, -19.9, 0.0),  # not clamped
        (-60.0, -58.0, -2.0),
        (-1.0, -2.0, -30.0),
        (-22.0, -2.5, -1.5),  # w nearly clamped
    ],
)
def test_u35_the_unbiased_gradient_of_k3_is_exact_where_exp_is_clamped(
    policy: float, behaviour: float, reference: float
):
    """-w d with w = exp(policy - behaviour), d = reference - policy."""
    logprob = torch.tensor([[policy]], dtype=torch.float64, requires_grad=True)
    reference_lp, behaviour_lp = (torch.tensor([[value]], dtype=torch.float64) for value in (reference, behaviour))

    unbiased("k3", logprob, reference_lp, behaviour_lp, torch.tensor([[True]])).sum().backward()

    assert isinstance(logprob.grad, Tensor)
    assert logprob.grad.item() == pytest.approx(-math.exp(policy - behaviour) * (reference - policy), rel=1e-9)


def test_u35_a_clamped_weight_keeps_no_gradient():
    logprob = torch.tensor([[-1.0]], requires_grad=True)

    unbiased("k3", logprob, torch.tensor([[-3.0]]), torch.tensor([[-40.0]]), torch.tensor([[True]])).sum().backward()

    assert logprob.grad == torch.zeros(1, 1)
