"""Bad settings of the data section are refused with the reason, before anything is read."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from configs.data import Data, Source
from configs.errors import UserError
from configs.loader import dump_yaml, load_recipe
from configs.reward import Reward
from configs.schema import Recipe


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"source": "a.csv", "columns": {"prompt": "q"}},
            r"columns has prompt; the reader plain reads question, answer",
        ),
        ({"source": "a.csv", "reader": "gsm9k"}, r"reader"),
        ({"source": "arithmetic", "reader": "gsm8k"}, r"arithmetic has none"),
        ({"source": "reasoning_gym:gcd", "rows": 5}, r"reasoning_gym:gcd has none"),
        ({"source": "hub:a/b", "settings": {"streaming": True}}, r"settings\.streaming needs rows"),
        ({"source": "a.csv", "rows": 0}, r"rows"),
        ({"sources": [{"source": "a.csv"}], "source": "b.csv"}, r"data\.sources takes the place of data\.source"),
        ({"sources": [{"source": "x/a.csv"}, {"source": "y/a.csv"}]}, r"several sources are called a\.csv"),
        ({"source": "a.csv", "eval": {"source": "b/a.csv"}}, r"several sources are called a\.csv"),
        ({"sources": [{"source": "a.csv", "weight": 0}]}, r"weight"),
        ({"source": "a.csv", "eval": {"source": "b.csv", "weight": 2}}, r"eval\.weight"),
        (
            {"source": "reasoning_gym:gcd", "train_size": None},
            r"train_size: give a number, since reasoning_gym:gcd has",
        ),
        ({"source": "a.csv", "eval_size": None}, r"eval_size: give a number"),
        ({"source": "a.csv", "chat_template": "chatml"}, r"chat_template is 'chatml': give `plain`"),
        ({"source": "a.csv", "near_duplicates": 0.99}, r"near_duplicates"),
        ({"source": "a.csv", "too_long": "cut_right"}, r"too_long"),
        ({"source": "a.csv", "curriculum": {"low": 0.9, "high": 0.1}}, r"low \(0\.9\) is above curriculum\.high"),
        ({"source": "a.csv", "curriculum": {"floor": 0}}, r"floor"),
    ],
)
def test_a_bad_setting_is_refused_with_the_reason(settings: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Data.model_validate(settings)


def test_an_unknown_key_of_a_source_in_the_list_is_answered_with_the_nearest(tmp_path):
    recipe = tmp_path / "mix.yaml"
    recipe.write_text("data: {sources: [{source: arithmetic, wieght: 2}]}")
    with pytest.raises(UserError, match=r"unknown key data\.sources\.0\.wieght; did you mean weight\?"):
        load_recipe(str(recipe))


def test_the_simple_form_is_a_mixture_of_one():
    data = Data.model_validate({"source": "dir/a.csv", "columns": {"question": "q"}, "rows": 7})
    [source] = data.mixture
    assert (source.source, source.columns, source.rows) == ("dir/a.csv", {"question": "q"}, 7)
    assert Data().mixture[0].label == "arithmetic"


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"source": "dir/a.csv"}, "a.csv"),
        ({"source": "dir/folder/"}, "folder"),
        ({"source": "hub:openai/gsm8k"}, "gsm8k/train"),
        ({"source": "hub:openai/gsm8k", "settings": {"split": "test"}}, "gsm8k/test"),
        ({"source": "reasoning_gym:gcd"}, "reasoning_gym:gcd"),
        ({"source": "reasoning_gym:gcd", "name": "hard"}, "hard"),
    ],
)
def test_a_source_has_a_name_to_be_known_by(settings: dict[str, Any], label: str):
    assert Source.model_validate(settings).label == label


@pytest.mark.parametrize("name", ["r1", "gsm8k", "math", "reasoning_gym"])
def test_a_recipe_that_was_stored_with_all_its_defaults_is_read_again(name: str):
    recipe = load_recipe(name)
    assert Recipe.model_validate(yaml.safe_load(dump_yaml(recipe))) == recipe


def test_a_source_can_have_a_reward_of_its_own():
    own = {"accuracy": "exact"}
    data = Data.model_validate({"sources": [{"source": "a.csv", "reward": own}, {"source": "b.csv"}]})
    assert data.rewards == {"a.csv": Reward.model_validate(own)}


def test_a_cold_start_needs_sources_with_demonstrations():
    mixed = {"sources": [{"source": "arithmetic"}, {"source": "reasoning_gym:gcd"}]}
    with pytest.raises(ValidationError, match=r"cold_start needs demonstrations, which data\.source reasoning_gym:gcd"):
        Recipe.model_validate({"name": "a", "data": mixed, "cold_start": {}})
