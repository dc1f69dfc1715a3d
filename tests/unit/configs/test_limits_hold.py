"""Limits that a new run has to keep, and that runs of before may break: they still go on (U28, D18)."""

from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loader import RECIPES, dump_yaml, load_recipe, read_recipe
from configs.schema import STORED, Recipe
from tasks.run.ledger import create_run, open_run
from tasks.run.resume import check_resume


def sized(budget: int | None, context: int, response: int = 4) -> dict[str, object]:
    sections = {"model": {"context_length": context}, "rollout": {"max_response_tokens": response}}
    return {"name": "r", **sections, **({"optimizer": {"micro_batch_tokens": budget}} if budget else {})}


@pytest.mark.parametrize(
    ("budget", "context", "response"),
    [(7, 8, 4), (1, 64, 32), (8191, 8192, 1024), (None, 16384, 1024), (100, 4096, 24)],
    ids=["u28", "one token", "one too few", "the default", "short responses after long prompts"],
)
def test_u28_a_budget_below_the_longest_sequence_is_refused(budget: int | None, context: int, response: int):
    with pytest.raises(ValueError, match=rf"micro_batch_tokens \(\d+\) is less than .* {context} tokens") as refused:
        Recipe.model_validate(sized(budget, context, response))

    assert f"Set optimizer.micro_batch_tokens to {context} or more" in str(refused.value)


@pytest.mark.parametrize(("budget", "context"), [(8, 8), (9, 8), (None, 8192), (22528, 22528)])
def test_u28_a_budget_that_holds_the_longest_sequence_is_taken(budget: int | None, context: int):
    assert Recipe.model_validate(sized(budget, context)).model.context_length == context


def test_u28_the_command_line_names_the_file_and_both_keys():
    with pytest.raises(UserError) as refused:
        load_recipe("gsm8k", ["optimizer.micro_batch_tokens=1024"])

    assert str(refused.value).startswith(f"{RECIPES / 'gsm8k.yaml'}: optimizer.micro_batch_tokens (1024) is less")
    assert "(model.context_length)" in str(refused.value)


def test_u28_a_run_of_before_with_a_budget_that_is_too_small_can_be_opened_and_resumed(tmp_path: Path):
    begun = create_run(tmp_path, Recipe.model_validate(sized(7, 8), context=STORED))

    stored = open_run(tmp_path, begun.id)
    resumed = check_resume(stored, ["steps=99"])

    assert (stored.recipe.optimizer.micro_batch_tokens, resumed.recipe.steps) == (7, 99)


def test_u28_a_stored_recipe_that_begins_a_new_run_is_held_to_its_limits(tmp_path: Path):
    file = tmp_path / "recipe.yaml"
    file.write_text(dump_yaml(Recipe.model_validate(sized(7, 8), context=STORED)))

    assert read_recipe(file).optimizer.micro_batch_tokens == 7
    with pytest.raises(UserError, match="micro_batch_tokens"):
        load_recipe(str(file))


def test_a_negative_seed_of_the_data_is_refused_where_a_run_begins():
    negative = {"name": "r", "data": {"seed": -1}}

    with pytest.raises(ValueError, match=r"data\.seed \(-1\) is negative"):
        Recipe.model_validate(negative)
    assert Recipe.model_validate(negative, context=STORED).data.seed == -1
