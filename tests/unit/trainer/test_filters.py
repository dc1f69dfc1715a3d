from math import nan

import pytest
import torch

from configs.algorithm import Filters
from trainer.algorithm.filters import Selection, select


def select_from(
    rewards: list[float],
    settings: Filters,
    correctness: list[float] | None = None,
    truncated: list[int] | None = None,
    lags: list[int] | None = None,
) -> Selection:
    """Samples of one group; nothing is truncated or stale unless given."""
    count = len(rewards)
    return select(
        torch.tensor(rewards),
        torch.tensor(correctness or rewards),
        torch.zeros(count, dtype=torch.long),
        torch.tensor(truncated or [0] * count).bool(),
        torch.tensor(lags or [0] * count),
        settings,
    )


def test_a_sample_without_a_reward_takes_no_part():
    result = select_from([1, nan, 0], Filters())

    assert result.takes_part.tolist() == [True, False, True]
    assert result.trained.tolist() == [True, False, True]
    assert result.counts["unscored"] == 1


def test_a_sample_that_is_too_old_is_dropped():
    result = select_from([1, 0, 0], Filters(max_lag=1), lags=[0, 1, 2])

    assert result.takes_part.tolist() == [True, True, False]
    assert result.counts["stale"] == 1


@pytest.mark.parametrize(
    ("kind", "takes_part", "trained", "count"),
    [("keep", True, True, 0), ("mask", True, False, 1), ("drop", False, False, 1)],
)
def test_a_truncated_response_is_kept_masked_or_dropped(kind, takes_part: bool, trained: bool, count: int):
    result = select_from([1, 0], Filters(truncated=kind), truncated=[0, 1])

    assert result.takes_part.tolist() == [True, takes_part]
    assert result.trained.tolist() == [True, trained]
    assert result.counts["truncated"] == count


def test_a_group_of_equal_answers_is_dropped_by_raw_accuracy_although_rewards_differ():
    result = select_from([1.125, 1.0], Filters(zero_variance=True), correctness=[1.0, 1.0])

    assert not result.trained.any()
    assert result.counts["zero_variance"] == 2


def test_a_group_is_judged_by_the_samples_that_are_left():
    settings = Filters(zero_variance=True, truncated="drop", max_lag=1)

    result = select_from([1, 1, 0, 0], settings, truncated=[0, 0, 1, 0], lags=[0, 0, 0, 5])

    assert not result.trained.any()
    assert result.counts == {"unscored": 0, "stale": 1, "truncated": 1, "zero_variance": 2}
