"""A recipe is read, laid over its base, scaled, overridden and validated; every mistake is named."""

from pathlib import Path

import pytest
import yaml

from configs.errors import UserError
from configs.loader import RECIPES, dump_yaml, flatten, load_recipe
from configs.schema import Recipe


@pytest.fixture
def recipe_file(tmp_path: Path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_valid(path: Path) -> None:
    assert load_recipe(path.stem).name == path.stem


def test_a_recipe_that_was_dumped_loads_as_the_same_recipe() -> None:
    recipe = load_recipe("r1")

    assert Recipe.model_validate(yaml.safe_load(dump_yaml(recipe))) == recipe


def test_the_extending_file_wins_key_by_key(recipe_file) -> None:
    recipe_file("base.yaml", "steps: 5\nrollout: {shards: 1, temperature: 0.7}")
    top = recipe_file("top.yaml", "extends: base.yaml\nrollout: {shards: 4}")

    recipe = load_recipe(top)

    assert (recipe.name, recipe.steps, recipe.rollout.shards, recipe.rollout.temperature) == ("top", 5, 4, 0.7)


def test_overrides_win_over_the_scale_and_the_file(recipe_file) -> None:
    path = recipe_file("a.yaml", "steps: 1\nscale: auto\nscales: {small: {steps: 2}}")

    assert load_recipe(path).steps == 2
    assert load_recipe(path, ["steps=3", "optimizer.learning_rate=1e-5"]).optimizer.learning_rate == 1e-5
    assert load_recipe(path, ["steps=3"]).steps == 3


def test_an_override_replaces_a_mapping_where_a_file_adds_to_it(recipe_file) -> None:
    path = recipe_file("a.yaml", "data: {settings: {digits: 1}}")

    assert load_recipe(path, ["data.settings={}"]).data.settings == {}
    assert load_recipe(path, ["data.settings.working=true"]).data.settings == {"digits": 1, "working": True}


@pytest.mark.parametrize(("gpus", "scale"), [(0, "tiny"), (1, "one"), (7, "one"), (8, "node"), (64, "node")])
def test_scale_auto_takes_the_largest_that_the_cluster_holds(recipe_file, gpus: int, scale: str) -> None:
    path = recipe_file("a.yaml", "scale: auto\nscales: {tiny: {gpus: 0}, one: {gpus: 1}, node: {gpus: 8}}")

    assert load_recipe(path, gpus=gpus).scale == scale


def test_a_named_scale_is_taken_whatever_the_cluster_holds(recipe_file) -> None:
    path = recipe_file("a.yaml", "scale: auto\nscales: {tiny: {gpus: 0}, node: {gpus: 8}}")

    assert load_recipe(path, ["scale=node"], gpus=0).scale == "node"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rollout.shard=3", r"unknown key rollout\.shard; did you mean shards\?"),
        ("rollot.shards=3", r"unknown key rollot; did you mean rollout\?"),
        ("cold_start.step=3", r"unknown key cold_start\.step; did you mean steps\?"),
        ("steps=many", r"steps: .*valid integer.*'many'"),
        ("rollout.temperature=0", r"rollout\.temperature: .*greater than 0"),
        ("rollout.temperature=-0.1", r"rollout\.temperature: .*greater than 0"),
        ("rollout.prompts_per_step=5000", r"prompts_per_step \(5000\).* is larger than the dataset"),
        ("rollout.max_response_tokens=64", r"leaves no room for a prompt"),
        ("rollout.shards=17", r"shards \(17\) is larger than rollout\.prompts_per_step"),
        ("data.source=reasoning_gym:gcd", r"cold_start needs demonstrations"),
        ("scale=huge", r"scale 'huge' is not one of auto, tiny"),
        ("steps", r"not of the form section\.key=value"),
        ("steps=[", r"not valid YAML"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_the_nearest_key(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe("r1", ["rollout.prompts_per_step=16", override])


def test_the_file_of_a_mistake_is_named(recipe_file) -> None:
    path = recipe_file("broken.yaml", "stepz: 3")

    with pytest.raises(UserError, match=r"broken\.yaml: unknown key stepz; did you mean steps"):
        load_recipe(path)


def test_an_unknown_recipe_lists_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"no recipe 'r2'.*r1.*did you mean r1"):
        load_recipe("r2")


def test_recipes_that_extend_each_other_in_a_circle_are_refused(recipe_file) -> None:
    recipe_file("a.yaml", "extends: b.yaml")
    path = recipe_file("b.yaml", "extends: a.yaml")

    with pytest.raises(UserError, match="circle"):
        load_recipe(path)


def test_a_recipe_is_data_and_runs_nothing(recipe_file) -> None:
    path = recipe_file("evil.yaml", "name: !!python/object/apply:os.getcwd []")

    with pytest.raises(UserError, match="not valid YAML"):
        load_recipe(path)


def test_flatten_gives_every_leaf_by_its_dotted_key() -> None:
    flat = flatten(load_recipe("r1", ["rollout.shards=3"]))

    assert flat["rollout.shards"] == 3
    assert flat["model.path"] == "tiny"
    assert not any(isinstance(value, dict) and value for value in flat.values())


def test_every_field_says_what_it_means() -> None:
    def undocumented(model) -> list[str]:
        return [
            name
            for name, field in model.model_fields.items()
            if field.description is None and not hasattr(field.annotation, "model_fields") and name != "cold_start"
        ]

    sections = [field.annotation for field in Recipe.model_fields.values() if hasattr(field.annotation, "model_fields")]
    assert [undocumented(section) for section in [Recipe, *sections]] == [[]] * (len(sections) + 1)
