"""The settings of docs/papers.md are valid recipes, and what a recipe has otherwise than its paper is told."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from configs.loader import RECIPES, load_recipe
from configs.papers import PAPERS, Paper, differences, value_of
from configs.schema import Recipe

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "papers.md").read_text()
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
FUNCTIONS = re.findall(r"`(\w+)\.(\w+)`", PAGE)
OTHERS = {
    str: (),
    int: (2, 3),
    float: (0.07, 0.09),
    tuple: ((0.25, 3.0), (0.125, 2.5)),
    type(None): (0.3,),
}
"""Other values for a setting that a paper has, by type."""
NAMES = {
    "advantage": ("rloo", "grpo"),
    "loss": ("policy_gradient", "clip"),
    "aggregation": ("token_mean", "sequence_mean_token_mean"),
    "estimator": ("k2", "k1", "k3"),
    "place": ("loss", "reward"),
    "weight": ("none", "sequence"),
}
"""Other names, by setting."""
each_paper = pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.method)


def tree_of(snippet: str) -> dict[str, Any]:
    return {"name": "paper"} | yaml.safe_load(snippet)


def put(tree: dict[str, Any], setting: str, value: Any) -> dict[str, Any]:
    """The tree with one setting changed."""
    key, _, rest = setting.partition(".")
    return {**tree, key: put(tree.get(key, {}), rest, value) if rest else value}


def of_the_paper(paper: Paper) -> dict[str, Any]:
    """The recipe of the page that is equal to the paper's."""
    for snippet in SNIPPETS:
        tree = tree_of(snippet)
        recipe = Recipe.model_validate(tree)
        found = differences(recipe)
        if paper.applies(recipe.algorithm) and not any(difference.method == paper.method for difference in found):
            return tree
    raise AssertionError(f"the page has no recipe that is {paper.method}'s")


def told(tree: dict[str, Any], paper: Paper) -> list[str]:
    """What is told of a recipe beside one paper, by setting."""
    return [found.setting for found in differences(Recipe.model_validate(tree)) if found.method == paper.method]


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


@each_paper
def test_a_recipe_that_is_the_papers_says_nothing(paper: Paper):
    assert told(of_the_paper(paper), paper) == []


@pytest.mark.parametrize("snippet", re.findall(r"```yaml\n(.*?)```", PAGE.split("## KL")[0], flags=re.DOTALL))
def test_the_recipe_under_a_methods_name_has_all_that_its_paper_sets(snippet: str):
    recipe = Recipe.model_validate(tree_of(snippet))

    assert recipe.algorithm.dual_clip or differences(recipe) == []


@pytest.mark.parametrize(("paper", "setting"), [(paper, name) for paper in PAPERS for name in paper.settings])
def test_a_setting_that_is_not_the_papers_is_told_with_both_values_and_the_place(paper: Paper, setting: str):
    tree, stated = of_the_paper(paper), paper.settings[setting]
    for other in (*NAMES.get(setting.rpartition(".")[2], ()), *OTHERS[type(stated.value)]):
        changed = put(tree, setting, other)
        try:
            recipe = Recipe.model_validate(changed)
        except ValidationError:
            continue  # this value does not go with the paper's other settings
        if other == stated.value or not paper.applies(recipe.algorithm):
            continue
        (difference,) = [found for found in differences(recipe) if found.setting == setting]
        assert (difference.value, difference.papers) == (other, stated.value)
        assert difference.source in str(difference)
        assert re.search(r"arXiv \d{4}\.\d{5}|^\S+/\S+ [0-9a-f]{7}", difference.source)
        return
    assert setting in {"algorithm.loss", "algorithm.kl.place"}, "no other value is a valid recipe of the method"


def test_what_a_recipe_has_by_default_is_told_of_beside_grpo():
    found = [str(difference) for difference in differences(Recipe(name="default"))]

    assert found == [
        "algorithm.clip_high 0.28: the paper (arXiv 1707.06347, section 3, since GRPO's names none) has 0.2",
        "algorithm.aggregation token_mean: the paper (arXiv 2402.03300, equation 3) has sequence_mean_token_mean",
        "algorithm.kl.coefficient 0: the paper (arXiv 2402.03300, section 4.2) has 0.04",
    ]


def test_bounds_of_gspo_that_are_those_of_a_clip_of_tokens_are_told():
    recipe = Recipe.model_validate(tree_of("algorithm: {loss: gspo}\noptimizer: {minibatches: 4}"))

    assert [(found.setting, found.papers) for found in differences(recipe)] == [
        ("algorithm.clip_low", 3e-4),
        ("algorithm.clip_high", 4e-4),
        ("algorithm.aggregation", "sequence_mean_token_mean"),
    ]


def test_a_kl_that_is_off_is_told_of_without_its_estimator():
    recipe = Recipe.model_validate(tree_of("algorithm: {advantage: rloo, loss: policy_gradient}"))

    found = {difference.setting for difference in differences(recipe)}
    assert "algorithm.kl.coefficient" in found
    assert not {"algorithm.kl.estimator", "algorithm.kl.place"} & found


@pytest.mark.parametrize("loss", ["policy_gradient", "clip"])
def test_a_clip_bound_is_told_of_only_where_there_is_a_clip(loss: str):
    recipe = Recipe.model_validate(tree_of(f"algorithm: {{loss: {loss}}}"))

    assert ("algorithm.clip_high" in {found.setting for found in differences(recipe)}) == (loss == "clip")


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "reinforce_pp", "reinforce_pp_baseline", "gae"])
def test_a_loss_without_a_ratio_is_told_of_beside_a_paper_with_one(advantage: str):
    recipe = Recipe.model_validate(tree_of(f"algorithm: {{advantage: {advantage}, loss: policy_gradient}}"))

    assert [found.papers for found in differences(recipe) if found.setting == "algorithm.loss"] == ["clip"]


def test_dynamic_sampling_makes_the_paper_dapo():
    recipe = Recipe.model_validate(tree_of("algorithm: {dynamic_sampling: {}, kl: {coefficient: 0.001}}"))

    assert {(found.method, found.setting) for found in differences(recipe)} == {
        ("DAPO", "algorithm.kl.coefficient"),
        ("DAPO", "optimizer.minibatches"),
    }


@each_paper
def test_what_a_paper_sets_is_a_setting_of_a_recipe(paper: Paper):
    recipe = Recipe(name="default")

    assert paper.settings
    for setting in paper.settings:
        value_of(recipe, setting)


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_a_shipped_recipe_has_at_most_one_paper_and_a_few_lines(name: str):
    found = differences(load_recipe(name))

    assert len({difference.method for difference in found}) <= 1
    assert len(found) <= 5
