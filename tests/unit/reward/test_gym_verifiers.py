"""Every task of reasoning-gym takes its own answer for right after its entry was stored (U09)."""

import json
from collections.abc import Iterator
from decimal import getcontext
from typing import Any

import pytest
from reasoning_gym.factory import DATASETS

from configs.reward import ReasoningGym, Reward
from tasks.dataset.gym import generate_questions
from tasks.records.question import Question
from tasks.reward import checkers
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer, gold_statuses

STATES_NO_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
SETTINGS: dict[str, dict[str, Any]] = {
    # The default takes seconds to find a question.
    "knight_swap": {"max_nodes": 7, "max_pieces": 2, "max_steps": 10},
}
TASKS = sorted(set(DATASETS) - {"composite"})  # That one mixes others, by objects that no recipe can hold.
BOARDS = [("rearc", {}), ("arc_agi", {}), ("arc_agi", {"use_eval": False})]


def questions(task: str, size: int = 1, seed: int = 0, **settings: Any) -> Iterator[Question]:
    yield from generate_questions(task, settings or SETTINGS.get(task, {}), seed, size)


def is_right(question: Question, text: str) -> bool:
    return checkers.reasoning_gym(ReasoningGym(), Answered(text, question, "stop", 1))


@pytest.mark.parametrize("task", TASKS)
def test_u09_the_own_answer_of_every_task_that_states_one_has_full_marks(task: str):
    [question] = questions(task)

    if task in STATES_NO_ANSWER:
        assert question.gold == ""
    else:
        assert is_right(question, f"<answer>{question.gold}</answer>")


@pytest.mark.parametrize(("task", "settings"), BOARDS)
def test_u09_a_board_is_compared_cell_by_cell(task: str, settings: dict[str, Any]):
    for question in questions(task, size=4, **settings):
        if "[" in question.gold or not question.gold.strip():
            continue
        first, *rest = question.gold.split(" ")
        other = " ".join([str((int(first) + 1) % 10), *rest])

        assert is_right(question, question.gold)
        assert not is_right(question, other)
        assert not is_right(question, f"<answer>{question.gold} 0</answer>")
        assert not is_right(question, "<answer></answer>")


def test_u09_an_entry_that_was_stored_before_is_read_the_same_way():
    """Prepared datasets hold the entry as JSON has it."""
    [question] = questions("rearc")
    stored = json.dumps(json.loads(question.metadata))

    assert is_right(Question("q", question.text, question.gold, "s", stored), question.gold)


@pytest.mark.parametrize("task", ["decimal_arithmetic", "decimal_chain_sum"])
def test_a_task_that_sets_the_precision_of_decimals_sets_it_for_itself_alone(task: str):
    """The checkers of numbers and of JSON run in the same process."""
    before = getcontext().prec

    [question] = questions(task)
    assert is_right(question, question.gold)

    assert getcontext().prec == before


@pytest.mark.parametrize("task", sorted(STATES_NO_ANSWER))
def test_u09_a_task_that_states_no_answer_is_asked_as_it_was(task: str):
    [question] = questions(task)

    assert not is_right(question, "<answer>no</answer>")


def test_u09_preparation_keeps_the_questions_of_tasks_that_compare_tuples():
    golds = [question for task in ("rearc", "arc_agi") for question in questions(task, size=3)]

    with Scorer(Reward.model_validate({"accuracy": "reasoning_gym"})) as scorer:
        assert gold_statuses(scorer, golds) == ["right"] * 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_u09_ten_questions_of_every_task_can_be_won(seed: int):
    asked = [
        question for task in sorted({*TASKS} - STATES_NO_ANSWER) for question in questions(task, size=10, seed=seed)
    ]

    with Scorer(Reward.model_validate({"accuracy": "reasoning_gym", "timeout_seconds": 60.0})) as scorer:
        statuses = gold_statuses(scorer, asked)

    lost = [(question.id, status) for question, status in zip(asked, statuses, strict=True) if status != "right"]
    assert lost == []
