import pytest
import torch
from torch import Tensor

from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.critic import value_objective


def value_loss(value: float, old: float, target: float, clip: float | None = 0.2) -> tuple[float, float, float]:
    """Loss, gradient and share of clipped values for one token."""
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    result = value_objective(values, torch.tensor([[old]]), torch.tensor([[target]]), mask, normaliser(mask, 1), clip)
    result.loss.backward()
    assert isinstance(values.grad, Tensor)
    return result.loss.item(), values.grad.item(), result.means["value_clip_share"].item()


def test_half_of_the_squared_error():
    assert value_loss(0.6, 0.5, 1.0) == pytest.approx((0.08, -0.4, 0))


def test_a_value_that_moved_far_towards_its_target_has_no_gradient():
    # From 0.5 to 0.9: held at 0.7, whose error is larger: 0.3² / 2.
    assert value_loss(0.9, 0.5, 1.0) == pytest.approx((0.045, 0, 1))
    assert value_loss(0.9, 0.5, 1.0, clip=None) == pytest.approx((0.005, -0.1, 0))


def test_a_value_that_moved_away_is_drawn_back():
    assert value_loss(0.1, 0.5, 1.0) == pytest.approx((0.405, -0.9, 0))


def test_parts_add_up_and_masked_tokens_do_not_count():
    values = torch.tensor([[0.5, 0.1], [0.3, float("nan")]])
    mask = torch.tensor([[True, True], [True, False]])
    counts, zeros = normaliser(mask, 2), torch.zeros(2, 2)

    whole = value_objective(values, values, zeros, mask, counts, 0.2).loss
    parts = sum(
        value_objective(values[row], values[row], zeros[row], mask[row], counts, 0.2).loss
        for row in (slice(0, 1), slice(1, 2))
    )

    torch.testing.assert_close(whole, torch.tensor((0.25 + 0.01 + 0.09) / 3 / 2))
    torch.testing.assert_close(parts, whole)
