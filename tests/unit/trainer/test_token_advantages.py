import pytest
import torch

from trainer.algorithm.token_advantages import distillation, gae, normalised, rewards_to_go, token_rewards


def numbers(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_reward_of_a_sample_stands_at_its_last_token_and_the_kl_at_each():
    mask = torch.tensor([[True, True, False], [True, False, True], [False, False, False]])
    kl = torch.where(mask, 0.5, 0.0).double()

    result = token_rewards(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), kl, 0.1, mask)

    torch.testing.assert_close(result, numbers([-0.05, 0.95, 0], [-0.05, 0, 1.95], [0, 0, 0]))


def test_rewards_to_go_sum_up_what_is_still_to_come():
    assert rewards_to_go(numbers([1, 2, 3])).tolist() == [[6, 5, 3]]


def test_gae_of_two_tokens():
    rewards, values = numbers([0, 1]), numbers([0.5, 0.25])

    advantages, returns = gae(rewards, values, torch.tensor([[True, True]]), discount=0.9, smoothing=0.8)

    # Last: 1 + 0 - 0.25 = 0.75. First: 0 + 0.9 * 0.25 - 0.5 = -0.275, plus 0.9 * 0.8 * 0.75 = 0.54.
    assert advantages.tolist() == [pytest.approx([0.265, 0.75])]
    assert returns.tolist() == [pytest.approx([0.765, 1.0])]


def test_gae_without_discount_and_smoothing_is_return_minus_value():
    rewards, values = numbers([0, 0, 1]), numbers([0.1, 0.7, 0.4])

    advantages, returns = gae(rewards, values, torch.ones(1, 3, dtype=torch.bool), discount=1.0, smoothing=1.0)

    assert advantages.tolist() == [pytest.approx([0.9, 0.3, 0.6])]
    assert returns.tolist() == [pytest.approx([1, 1, 1])]


def test_gae_steps_over_the_tokens_of_tools_and_of_padding():
    mask = torch.tensor([[True, False, True, False]])

    advantages, returns = gae(numbers([0, 0, 1, 0]), numbers([0.5, 77, 0.25, 88]), mask, discount=0.9, smoothing=0.8)

    assert advantages.tolist() == [pytest.approx([0.265, 0, 0.75, 0])]
    assert returns.tolist() == [pytest.approx([0.765, 0, 1.0, 0])]


def test_normalised_has_mean_0_and_deviation_1_over_the_batchs_tokens():
    mask = torch.tensor([[True, True], [True, False]])

    result = normalised(numbers([1, 2], [3, 99]), mask)

    assert result.tolist() == [pytest.approx([-1, 0], abs=1e-5), pytest.approx([1, 0], abs=1e-5)]


@pytest.mark.parametrize("mask", [[[True, True]], [[True, False]], [[False, False]]])
def test_nothing_to_tell_apart_normalises_to_exactly_zero(mask):
    assert normalised(numbers([0.1, 0.1]), torch.tensor(mask)).tolist() == [[0, 0]]


def test_distillation_rewards_what_the_teacher_finds_likelier():
    mask = torch.tensor([[True, True, False]])

    result = distillation(numbers([-1, -2, -3]), numbers([-0.5, -4, float("nan")]), mask)

    assert result.tolist() == [[0.5, -2, 0]]
