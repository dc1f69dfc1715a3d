import json
from typing import Any, cast

import pytest

from configs.schema import Recipe
from tasks.records.samples import SampleRow
from tasks.reward.dynamic_sampling import NothingToLearn, accuracies, another_round, learnt_from


def recipe(max_rounds: int | None = 3) -> Recipe:
    """Two groups of two a step."""
    dynamic = {"dynamic_sampling": {"max_rounds": max_rounds}} if max_rounds else {}
    rollout = {"prompts_per_step": 2, "samples_per_prompt": 2, "shards": 1}
    return Recipe.model_validate({"name": "r", "rollout": rollout, "algorithm": dynamic})


class Scored:
    """A score task that has ended."""

    def __init__(self, accuracies: dict[str, list[float | None]]) -> None:
        self.accuracies = accuracies

    def result(self) -> dict[str, Any]:
        return {"accuracies": self.accuracies}


class Unfinished:
    def result(self) -> dict[str, Any]:
        raise AssertionError("waited for a score that nothing depends on")


def calls(*shards: Any) -> Any:
    return cast(Any, list(shards))


def rows(**outcomes: tuple[float, float]) -> list[SampleRow]:
    return [
        {"group": int(group[1:]), "reward": accuracy, "parts": json.dumps({"accuracy": accuracy})}
        for group, pair in outcomes.items()
        for accuracy in pair
    ]


def test_without_dynamic_sampling_a_step_has_one_round_and_nobody_waits_for_its_scores():
    assert not another_round(recipe(max_rounds=None), 1, calls(Unfinished()))


def test_groups_that_are_all_right_or_all_wrong_ask_for_another_round():
    uninformative = Scored({"0": [1.0, 1.0], "1": [0.0, 0.0]})

    assert another_round(recipe(), 1, calls(uninformative))


def test_the_informative_groups_of_all_rounds_count_together():
    first, second = Scored({"0": [1.0, 0.0], "1": [0.0, 0.0]}), Scored({"2": [1.0, 1.0], "3": [0.0, 1.0]})

    assert another_round(recipe(), 1, calls(first))
    assert not another_round(recipe(), 2, calls(first, second))


def test_when_the_rounds_are_used_up_it_is_an_error_that_says_what_to_change():
    with pytest.raises(NothingToLearn, match="after 3 rollout rounds only 0 of 2 groups"):
        another_round(recipe(), 3, calls(Scored({"0": [1.0, 1.0]})))


def test_an_update_takes_the_first_informative_groups_whatever_shard_they_were_in():
    samples = rows(g2=(1.0, 0.0), g10=(0.0, 1.0), g0=(1.0, 1.0), g1=(0.0, 1.0))

    assert {row["group"] for row in learnt_from(recipe(), samples)} == {1, 2}


def test_without_dynamic_sampling_an_update_takes_all_samples():
    samples = rows(g0=(1.0, 1.0), g1=(0.0, 1.0))

    assert learnt_from(recipe(max_rounds=None), samples) == samples


def test_accuracies_are_the_raw_ones_of_each_group():
    assert accuracies(rows(g0=(1.0, 0.0), g1=(0.0, 0.0))) == {"0": [1.0, 0.0], "1": [0.0, 0.0]}


def test_u08_a_sample_without_a_reward_makes_no_group_informative():
    """A further part of its reward failed: its accuracy is known, but the update leaves it out."""
    (one, other) = rows(g0=(1.0, 0.0))

    assert accuracies([one, other | {"reward": None}]) == {"0": [1.0, None]}
    assert learnt_from(recipe(), [one, other | {"reward": None}]) == []


def test_u08_when_samples_could_not_be_scored_the_error_says_so():
    with pytest.raises(NothingToLearn, match=r"\(3 samples could not be scored: look at the reward first\)"):
        another_round(recipe(), 3, calls(Scored({"0": [1.0, None], "1": [None, None]})))
