from pathlib import Path
from typing import Any

from configs.schema import Recipe
from tasks.dataset.prompt_order import prompts_of_round
from tasks.records.question import Prompt, Question
from tasks.run.directory import Run
from trainer.files import write_json

PROMPTS = [Prompt(Question(str(index), f"question {index}", "1", "test"), [index]) for index in range(40)]


def run(folder: Path, **data: Any) -> Run:
    settings = {"name": "r", "steps": 5, "rollout": {"prompts_per_step": 4, "shards": 2}, "data": data}
    return Run(folder / "r", Recipe.model_validate(settings))


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
