from pathlib import Path
from typing import Any

import pytest

from configs.schema import Recipe
from tasks.dataset.prompt_order import prompts_of_round, prompts_of_step
from tasks.records.question import Prompt, Question
from tasks.run.directory import Run
from tasks.run.ledger import create_run, open_run
from tasks.run.resume import check_resume, go_on
from trainer.files import read_json, write_json

PROMPTS = [Prompt(Question(str(index), f"question {index}", "1", "test"), [index]) for index in range(40)]


def recipe(run_seed: int = 0, **data: Any) -> Recipe:
    rollout = {"prompts_per_step": 4, "shards": 2}
    return Recipe.model_validate({"name": "r", "seed": run_seed, "steps": 5, "rollout": rollout, "data": data})


def run(folder: Path, **data: Any) -> Run:
    return Run(folder / "r", recipe(**data))


def ids(chosen: list[tuple[int, Prompt]]) -> list[str]:
    return [prompt.question.id for _, prompt in chosen]


def test_the_groups_of_a_steps_rounds_are_numbered_on(tmp_path: Path):
    assert [group for group, _ in prompts_of_round(run(tmp_path), 1, 0, PROMPTS)] == [0, 1, 2, 3]
    assert [group for group, _ in prompts_of_round(run(tmp_path), 1, 2, PROMPTS)] == [8, 9, 10, 11]


def test_another_round_takes_prompts_that_no_step_of_the_epoch_takes(tmp_path: Path):
    of_steps = {name for step in range(1, 6) for name in ids(prompts_of_round(run(tmp_path), step, 0, PROMPTS))}

    assert of_steps.isdisjoint(ids(prompts_of_round(run(tmp_path), 3, 1, PROMPTS)))


def test_a_curriculum_draws_by_the_pass_rates_of_two_steps_before(tmp_path: Path):
    taught = run(tmp_path, curriculum={"low": 0.1, "high": 0.9})
    solved = {str(index): 1.0 for index in range(36)}
    write_json(taught.pass_rates(1), solved)
    write_json(taught.pass_rates(2), {})

    assert sorted(ids(prompts_of_round(taught, 3, 0, PROMPTS))) == ["36", "37", "38", "39"]


def test_a_curriculum_draws_no_prompt_twice_in_a_step_while_there_are_others(tmp_path: Path):
    taught = run(tmp_path, curriculum={"low": 0.1, "high": 0.9})
    write_json(taught.pass_rates(1), {str(index): 0.5 + index / 100 for index in range(20)})

    drawn = [ids(prompts_of_round(taught, 3, turn, PROMPTS)) for turn in range(12)]

    assert len({name for names in drawn[:10] for name in names}) == 40
    assert all(len(set(names)) == 4 for names in drawn[10:])
    assert drawn[10:] != drawn[:2]
    assert drawn == [ids(prompts_of_round(taught, 3, turn, PROMPTS)) for turn in range(12)]


def test_a_curriculum_begins_with_all_prompts_alike(tmp_path: Path):
    taught = run(tmp_path, curriculum={"low": 0.1, "high": 0.9})

    assert len(set(ids(prompts_of_round(taught, 1, 0, PROMPTS)))) == 4


def order(run: Run, rounds: int = 2) -> list[list[str]]:
    """The prompts of the run's steps and their rounds; no sample has been scored yet."""
    if run.recipe.data.curriculum:
        for step in range(1, 6):
            write_json(run.pass_rates(step), {})
    return [ids(prompts_of_round(run, step, turn, PROMPTS)) for step in range(1, 6) for turn in range(rounds)]


@pytest.mark.parametrize("data", [{}, {"curriculum": {"floor": 0.5}}], ids=["by epochs", "by pass rates"])
def test_u25_data_seed_alone_decides_the_order(tmp_path: Path, data: dict[str, Any]):
    first, *others = (order(create_run(tmp_path, recipe(seed, **data, seed=7))) for seed in (0, 1, 99))

    assert others == [first, first]
    assert order(create_run(tmp_path, recipe(0, **data, seed=8))) != first


def test_u25_where_both_seeds_are_equal_the_order_is_that_of_before(tmp_path: Path):
    begun = create_run(tmp_path, recipe(3, seed=3))

    assert order(begun, rounds=1) == [list(map(str, prompts_of_step(3, step, 40, 4))) for step in range(5)]


@pytest.mark.parametrize("data", [{}, {"curriculum": {"floor": 0.5}}], ids=["by epochs", "by pass rates"])
def test_u25_a_run_of_before_goes_on_in_the_order_of_its_seed(tmp_path: Path, data: dict[str, Any]):
    begun = create_run(tmp_path, recipe(5, **data, seed=7))
    record = read_json(begun.record)
    write_json(begun.record, {key: value for key, value in record.items() if key != "order_seed"})

    stored = open_run(tmp_path, begun.id)
    resumed = go_on(stored, check_resume(stored, ["evaluation.every=3"]))

    assert order(resumed) == order(create_run(tmp_path, recipe(0, **data, seed=5)))


def test_u25_a_run_keeps_the_order_that_it_began_with(tmp_path: Path):
    begun = create_run(tmp_path, recipe(5, seed=7))

    stored = open_run(tmp_path, begun.id)

    assert order(go_on(stored, check_resume(stored, ["evaluation.every=3"]))) == order(begun)
    assert read_json(begun.record)["order_seed"] == 7
