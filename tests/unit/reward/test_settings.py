"""What the recipe's `reward` section takes and refuses."""

from typing import Any

import pytest
from pydantic import ValidationError

from configs.loader import load_recipe
from configs.reward import Format, Math, Numeric, Python, Reward


def test_kinds_may_be_given_by_name():
    reward = Reward.model_validate({"accuracy": "math", "parts": {"form": "format", "own": "python:my.module.f"}})
    assert reward == Reward(accuracy=Math(), parts={"form": Format(), "own": Python(function="my.module.f")})


def test_the_default_is_the_number_alone():
    assert Reward() == Reward(accuracy=Numeric(), parts={})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"accuracy": "maths"}, "maths"),
        ({"accuracy": "format"}, "format"),
        ({"accuracy": "regex"}, "pattern"),
        ({"accuracy": {"kind": "regex", "pattern": "("}}, "not a regular expression"),
        ({"accuracy": "python:f"}, "function"),
        ({"accuracy": {"kind": "math", "wieght": 1}}, "wieght"),
        ({"accuracy": {"kind": "math", "weight": float("nan")}}, "weight"),
        ({"accuracy": {"kind": "http", "url": "ftp://x"}}, "url"),
        ({"accuracy": {"kind": "http", "url": "http://x", "scale": [1, 1]}}, "scale"),
        ({"accuracy": {"kind": "http", "url": "http://x", "judge": {"model": "m", "prompt": "Is it?"}}}, "response"),
        ({"parts": {"accuracy": "format"}}, "accuracy"),
        ({"parts": {"My part": "format"}}, "My part"),
        ({"parts": {"length": "overlong"}}, "max_tokens"),
        ({"parts": {"length": {"kind": "overlong", "max_tokens": 10, "buffer": 10}}}, "buffer"),
        ({"parts": {"length": {"kind": "cosine", "max_tokens": 10, "right": [2, 1]}}}, "right"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"checker": "numeric"}, "checker"),
    ],
)
def test_what_cant_work_is_refused_with_the_reason(settings: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Reward.model_validate(settings)


@pytest.mark.parametrize(
    "override", ["reward.accuracy=math", "reward.accuracy={kind: math, weight: 2}", "reward.parts.form=format"]
)
def test_a_recipe_stores_what_it_was_given(override: str):
    recipe = load_recipe("r1", [override])
    assert type(recipe).model_validate_json(recipe.model_dump_json()) == recipe
