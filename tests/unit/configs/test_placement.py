from typing import Any

import pytest
from pydantic import ValidationError

from configs.loader import load_recipe
from configs.schema import Recipe

SHARED = {"gpus": 1, "placement": "colocated"}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        (
            {"engine": {**SHARED, "count": 2}, "learner": {"gpus": 1}},
            r"learner\.ranks \(1\) x learner\.gpus \(1\) has to be engine\.count \(2\) x engine\.gpus \(1\)",
        ),
        ({"engine": SHARED}, "puts a rank on each GPU of the engines"),
        ({"engine": {"placement": "colocated"}, "learner": {"gpus": 1}}, "puts a rank on each GPU of the engines"),
        (
            {"engine": SHARED, "learner": {"gpus": 1}, "pipeline": {"max_staleness": 1}},
            r"max_staleness is 1, but with engine\.placement colocated rollouts and updates take turns",
        ),
        ({"learner": {"ranks": 6, "replicas": 4}}, r"ranks \(6\) has to be a multiple of replicas \(4\)"),
    ],
)
def test_placements_that_can_not_work_are_refused_with_the_reason(sections: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Recipe(name="test", **sections)


def test_on_a_cpu_colocated_is_taken_and_means_nothing():
    assert not Recipe.model_validate({"name": "test", "engine": {"placement": "colocated"}}).engine.colocated


@pytest.mark.parametrize(
    ("gpus", "scale", "colocated"), [(0, "tiny", False), (1, "single", True), (2, "pair", False), (8, "pair", False)]
)
def test_r1_takes_the_largest_scale_that_the_gpus_allow(gpus: int, scale: str, colocated: bool):
    recipe = load_recipe("r1", gpus=gpus)

    assert (recipe.scale, recipe.engine.colocated) == (scale, colocated)


def test_one_and_two_gpus_train_the_same():
    one, two = load_recipe("r1", gpus=1), load_recipe("r1", gpus=2)

    assert one.model_copy(update={"engine": two.engine, "scale": two.scale}) == two
