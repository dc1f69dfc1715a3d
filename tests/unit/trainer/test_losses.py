from math import inf, log, nan

import pytest
import torch
from torch import Tensor

from trainer.algorithm.aggregate import token_mean
from trainer.algorithm.losses import clipped_surrogate


def surrogate(ratios: list[float], advantages: list[float], clip_high: float = 0.2):
    logprobs = torch.tensor([[log(ratio) for ratio in ratios]])
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    return clipped_surrogate(
        logprobs, torch.zeros_like(logprobs), torch.tensor([advantages]), mask, clip_low=0.2, clip_high=clip_high
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.5, 1, -1.2, True),
        (0.5, 1, -0.5, False),
        (1.5, -1, 1.5, False),
        (0.5, -1, 0.8, True),
        (10, -1, 10, False),  # no dual clip
        (10, 1, -1.2, True),
    ],
)
def test_the_clip_takes_the_pessimistic_bound(ratio: float, advantage: float, loss: float, clipped: bool):
    result = surrogate([ratio], [advantage])

    assert result.loss.item() == pytest.approx(loss)
    assert result.clipped.item() is clipped


def test_the_upper_bound_is_set_apart_from_the_lower_one():
    assert surrogate([2.0], [1.0], clip_high=0.28).loss.item() == pytest.approx(-1.28)
    assert surrogate([0.1], [-1.0], clip_high=0.28).loss.item() == pytest.approx(0.8)


def test_ratios_are_those_of_tokens_and_not_of_the_sequence():
    result = surrogate([1.15, 0.85, 1.6], [1, 1, 1])

    # -(1.15 + 0.85 + 1.2) / 3; the product of the ratios, 1.564, would be clipped to -1.2.
    assert result.loss.mean().item() == pytest.approx(-1.066667)


def test_the_ratio_is_against_the_behaviour_log_prob_and_not_against_itself():
    mask = torch.tensor([[True]])

    result = clipped_surrogate(
        torch.tensor([[-0.5]]), torch.tensor([[-1.0]]), torch.ones(1, 1), mask, clip_low=0.2, clip_high=0.2
    )

    assert result.ratio.item() == pytest.approx(1.648721)  # exp(0.5)


def test_one_on_policy_update_has_ratio_one_and_clips_nothing():
    logprobs = torch.tensor([[-0.3, -2.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)

    result = clipped_surrogate(logprobs, logprobs.clone(), torch.ones(1, 1), mask, clip_low=0.2, clip_high=0.2)

    assert result.ratio.tolist() == [[1.0, 1.0]]
    assert not result.clipped.any()


def loss_and_gradient(policy: list[float], behaviour: list[float], advantages: list[float], mask: list[bool]):
    logprobs = torch.tensor([policy], dtype=torch.float32, requires_grad=True)
    mask_tensor = torch.tensor([mask])
    result = clipped_surrogate(
        logprobs, torch.tensor([behaviour]), torch.tensor([advantages]), mask_tensor, clip_low=0.2, clip_high=0.2
    )
    loss = token_mean(result.loss, mask_tensor, sum(mask))
    loss.backward()
    assert isinstance(logprobs.grad, Tensor)
    return result, loss.item(), logprobs.grad[0].tolist()


@pytest.mark.parametrize("poison", [-3.0, -inf, nan])
def test_a_masked_token_can_not_poison_loss_or_gradient(poison: float):
    _, loss, gradient = loss_and_gradient([poison, -1], [-92, -1], [0, 1], [False, True])

    assert loss == -1.0
    assert gradient == [0, -1]


def test_a_ratio_that_would_overflow_is_clamped_and_reported_raw():
    result, loss, gradient = loss_and_gradient([-3, -1], [-92, -1], [1, 1], [True, True])

    # exp(89) does not fit into float32. Both tokens: -(1.2 + 1) / 2.
    assert loss == pytest.approx(-1.1)
    assert gradient == [0, -0.5]
    assert result.log_ratio[0].tolist() == [89, 0]


def test_a_batch_without_trained_tokens_has_loss_and_gradient_zero():
    _, loss, gradient = loss_and_gradient([-3, -1], [-92, nan], [1, nan], [False, False])

    assert loss == 0
    assert gradient == [0, 0]
