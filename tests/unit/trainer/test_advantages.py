from math import nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithm.advantages import Advantages, group_relative


def advantages_of_one_group(rewards: list[float], std_normalised: bool = True) -> Advantages:
    return group_relative(
        torch.tensor(rewards), torch.zeros(len(rewards), dtype=torch.long), std_normalised=std_normalised
    )


@pytest.mark.parametrize("rewards", [[1 / 3] * 8, [0.7] * 7, [0.1] * 8])
def test_a_group_of_equal_rewards_gets_exactly_zero_although_their_mean_in_float32_differs(rewards: list[float]):
    result = advantages_of_one_group(rewards)

    assert result.values.tolist() == [0.0] * len(rewards)
    assert result.zero_variance_share == 1.0


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        # Mean 1/4, unbiased variance (9/16 + 3/16) / 3 = 1/4, deviation 1/2.
        ([1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),
        # Mean 1/2, unbiased variance (4/4) / 3; 0.5 * sqrt(3) = 0.866025.
        ([1, 1, 0, 0], [0.866025, 0.866025, -0.866025, -0.866025]),
    ],
)
def test_the_standard_deviation_is_the_unbiased_one(rewards: list[float], expected: list[float]):
    assert advantages_of_one_group(rewards).values.tolist() == pytest.approx(expected, abs=1e-5)


def test_dr_grpo_only_takes_the_mean_off():
    result = advantages_of_one_group([1, 0, 0, 0], std_normalised=False)

    assert result.values.tolist() == [0.75, -0.25, -0.25, -0.25]


def test_with_the_deviation_divided_out_the_scale_of_rewards_does_not_matter():
    # Mean 1/5, unbiased variance (16/25 + 4/25) / 4 = 1/5; (4/5) / sqrt(1/5) = 1.78885.
    expected = [-0.44721, -0.44721, -0.44721, -0.44721, 1.78885]

    assert advantages_of_one_group([0, 0, 0, 0, 1]).values.tolist() == pytest.approx(expected, abs=1e-5)
    assert advantages_of_one_group([0, 0, 0, 0, 10]).values.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_missing_reward_is_masked_and_leaves_the_others_as_if_it_were_not_there():
    result = advantages_of_one_group([1, nan, 0, 1])

    # [1, 0, 1]: mean 2/3, unbiased variance (1/9 + 4/9 + 1/9) / 2 = 1/3; (1/3) * sqrt(3) = 0.57735.
    assert result.values.tolist() == pytest.approx([0.57735, 0, -1.15470, 0.57735], abs=1e-5)
    assert result.scored.tolist() == [True, False, True, True]


@pytest.mark.parametrize("rewards", [[nan, nan, 1, nan], [1.0], [nan]])
def test_a_group_with_at_most_one_reward_gets_zero_and_not_nan(rewards: list[float]):
    assert advantages_of_one_group(rewards).values.tolist() == [0.0] * len(rewards)


def test_groups_are_told_apart_by_id_wherever_their_members_stand_and_however_many_they_are():
    rewards = torch.tensor([1.0, 5.0, 0.0, 5.0, 0.0, 5.0, 0.0])
    groups = torch.tensor([7, 3, 7, 3, 7, 3, 7])

    result = group_relative(rewards, groups)

    assert result.values.tolist() == pytest.approx([1.5, 0, -0.5, 0, -0.5, 0, -0.5], abs=1e-5)
    assert result.zero_variance_share == 0.5


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), min_size=1, max_size=20), st.randoms())
def test_order_does_not_matter(items: list[tuple[int, float]], random):
    order = list(range(len(items)))
    random.shuffle(order)
    groups = torch.tensor([group for group, _ in items])
    rewards = torch.tensor([reward for _, reward in items])

    shuffled = group_relative(rewards[order], groups[order]).values

    torch.testing.assert_close(shuffled, group_relative(rewards, groups).values[order], atol=1e-5, rtol=1e-5)
