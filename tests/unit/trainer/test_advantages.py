import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from configs.algorithm import AdvantageName
from trainer.algorithm.advantages import ESTIMATORS, constant_groups

COMPARING = sorted(set(ESTIMATORS) - {"accepted"})


def of_one_group(name: AdvantageName, rewards: list[float]) -> list[float]:
    values = torch.tensor(rewards, dtype=torch.float64)
    return ESTIMATORS[name](values, torch.zeros(len(rewards), dtype=torch.long)).tolist()


@pytest.mark.parametrize("name", COMPARING)
@pytest.mark.parametrize("rewards", [[1 / 3] * 8, [0.7] * 7, [0.1] * 8, [0.0] * 4, [1.0]])
def test_a_group_of_equal_rewards_gets_exactly_zero(name: AdvantageName, rewards: list[float]):
    # As the learner gets them: float32 numbers whose mean is another number in float32 and may be one in float64.
    rewards = torch.tensor(rewards, dtype=torch.float32).tolist()

    assert of_one_group(name, rewards) == [0.0] * len(rewards)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        # Mean 1/4, unbiased variance (9/16 + 3/16) / 3 = 1/4, deviation 1/2. The population's would give 1.73205.
        ([1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),
        # Mean 1/2, unbiased variance (4/4) / 3; 0.5 * sqrt(3) = 0.866025.
        ([1, 1, 0, 0], [0.866025, 0.866025, -0.866025, -0.866025]),
        # [1, 0, 1]: mean 2/3, unbiased variance (1/9 + 4/9 + 1/9) / 2 = 1/3; (1/3) * sqrt(3) = 0.57735.
        ([1, 0, 1], [0.57735, -1.15470, 0.57735]),
    ],
)
def test_grpo_divides_by_the_unbiased_standard_deviation(rewards: list[float], expected: list[float]):
    assert of_one_group("grpo", rewards) == pytest.approx(expected, abs=1e-5)


def test_under_grpo_the_scale_of_rewards_does_not_matter():
    # Mean 1/5, unbiased variance (16/25 + 4/25) / 4 = 1/5; (4/5) / sqrt(1/5) = 1.78885.
    expected = [-0.44721, -0.44721, -0.44721, -0.44721, 1.78885]

    assert of_one_group("grpo", [0, 0, 0, 0, 1]) == pytest.approx(expected, abs=1e-5)
    assert of_one_group("grpo", [0, 0, 0, 0, 10]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dr_grpo", [0.75, -0.25, -0.25, -0.25]),  # minus the mean, 1/4
        ("rloo", [1, -1 / 3, -1 / 3, -1 / 3]),  # minus the mean of the others, 0 or 1/3
        ("maxrl", [3, -1, -1, -1]),  # (r - 1/4) / (1/4)
        ("batch_normalised", [1.5, -0.5, -0.5, -0.5]),  # one group is the batch
        ("accepted", [1, 1, 1, 1]),
    ],
)
def test_variants_on_one_right_answer_of_four(name: AdvantageName, expected: list[float]):
    assert of_one_group(name, [1, 0, 0, 0]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "maxrl"])
def test_a_group_does_not_change_with_the_others(name: AdvantageName):
    groups = torch.tensor([7, 3, 7, 3, 7, 3, 7])
    rewards = torch.tensor([1.0, 5.0, 0.0, 5.0, 0.0, 5.0, 0.0], dtype=torch.float64)

    result = ESTIMATORS[name](rewards, groups)

    assert result[groups == 7].tolist() == of_one_group(name, [1, 0, 0, 0])
    assert result[groups == 3].tolist() == [0, 0, 0]


def test_batch_normalised_looks_across_groups():
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)

    result = ESTIMATORS["batch_normalised"](rewards, torch.tensor([0, 0, 1, 1]))

    assert result.tolist() == pytest.approx([0.866025, 0.866025, -0.866025, -0.866025], abs=1e-5)


def test_maxrl_refuses_negative_rewards():
    with pytest.raises(ValueError, match=r"a reward is -0\.5: give rewards from 0 up"):
        of_one_group("maxrl", [1, -0.5])


def test_constant_groups_are_found_wherever_their_members_stand():
    constant = constant_groups(torch.tensor([1.0, 2.0, 0.0, 2.0]), torch.tensor([0, 1, 0, 1]))

    assert constant.tolist() == [False, True, False, True]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), min_size=1, max_size=20), st.randoms())
def test_order_does_not_matter(name: AdvantageName, items: list[tuple[int, float]], random):
    order = list(range(len(items)))
    random.shuffle(order)
    groups = torch.tensor([group for group, _ in items])
    rewards = torch.tensor([round(reward, 3) for _, reward in items], dtype=torch.float64)

    shuffled = ESTIMATORS[name](rewards[order], groups[order])

    torch.testing.assert_close(shuffled, ESTIMATORS[name](rewards, groups)[order], atol=1e-6, rtol=1e-6)
