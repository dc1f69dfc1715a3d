"""The settings that docs/papers.md promises are valid recipes."""

import re
from pathlib import Path

import pytest
import yaml

from configs.schema import Recipe

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "papers.md").read_text()
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
FUNCTIONS = re.findall(r"`(\w+)\.(\w+)`", PAGE)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_settings_of_a_paper_are_a_valid_recipe(snippet: str):
    recipe = Recipe.model_validate({"name": "paper"} | yaml.safe_load(snippet))

    assert recipe.algorithm.model_fields_set or recipe.reward.model_fields_set


@pytest.mark.parametrize(("module", "function"), sorted(set(FUNCTIONS)))
def test_a_function_that_the_page_names_exists(module: str, function: str):
    folders = (ROOT / "tasks" / "reward", ROOT / "trainer" / "algorithm")
    (file,) = (folder / f"{module}.py" for folder in folders if (folder / f"{module}.py").exists())

    assert f"def {function}(" in file.read_text()


@pytest.mark.parametrize("field", ["advantage", "loss", "aggregation"])
def test_every_method_that_can_be_chosen_is_on_the_page(field: str):
    choices = Recipe.model_json_schema()["$defs"]["Algorithm"]["properties"][field]["enum"]
    recipes = [Recipe.model_validate({"name": "paper"} | yaml.safe_load(snippet)) for snippet in SNIPPETS]

    assert {getattr(recipe.algorithm, field) for recipe in recipes} == set(choices)
