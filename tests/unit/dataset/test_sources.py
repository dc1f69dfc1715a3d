import json
from pathlib import Path

import pytest

from configs.data import Data
from configs.errors import UserError
from tasks.dataset.question import Question
from tasks.dataset.sources import Questions, drop_repeated, load, normalise


def texts(questions: list[Question]) -> list[str]:
    return [question.text for question in questions]


def write_rows(path: Path, asked: list[str]) -> str:
    path.write_text("".join(json.dumps({"question": text, "answer": "1"}) + "\n" for text in asked))
    return str(path)


def assert_disjoint(questions: Questions) -> None:
    keys = [normalise(question.text) for question in questions.train + questions.eval]
    assert len(set(keys)) == len(keys)


GENERATED = [
    Data(source="arithmetic", train_size=50, eval_size=20),
    Data(source="reasoning_gym:chain_sum", train_size=50, eval_size=20, settings={"max_terms": 2, "max_digits": 1}),
]


@pytest.mark.parametrize("data", GENERATED, ids=lambda data: data.source)
def test_generated_questions_are_as_many_as_asked_all_different_and_seeded(data: Data):
    questions = load(data)
    assert (len(questions.train), len(questions.eval)) == (50, 20)
    assert_disjoint(questions)
    assert load(data) == questions
    assert texts(load(data.model_copy(update={"seed": 1})).eval) != texts(questions.eval)


@pytest.mark.parametrize("data", GENERATED, ids=lambda data: data.source)
def test_evaluation_questions_stay_when_the_training_set_grows(data: Data):
    larger = data.model_copy(update={"train_size": 60})
    assert texts(load(larger).eval) == texts(load(data).eval)


def test_reasoning_gym_keeps_what_its_verifier_needs():
    question = load(Data(source="reasoning_gym:gcd", train_size=1, eval_size=1)).train[0]
    entry = json.loads(question.metadata)
    assert question.source == "reasoning_gym:gcd"
    assert entry["question"] == question.text
    assert entry["answer"] == question.gold


def test_reasoning_gym_is_given_the_settings():
    questions = load(
        Data(source="reasoning_gym:chain_sum", train_size=5, eval_size=1, settings={"min_terms": 4, "max_terms": 4})
    )
    assert all(json.loads(question.metadata)["metadata"]["num_terms"] == 4 for question in questions.train)


def test_an_unknown_reasoning_gym_task_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"no task 'chain_sums'; nearest: .*chain_sum"):
        load(Data(source="reasoning_gym:chain_sums"))


@pytest.mark.parametrize("settings", [{"terms": 2}, {"min_terms": -1}])
def test_settings_that_a_reasoning_gym_task_refuses_are_answered_with_those_it_knows(settings: dict):
    with pytest.raises(UserError, match=r"data\.settings: chain_sum refuses them: .*It knows min_terms, max_terms"):
        load(Data(source="reasoning_gym:chain_sum", settings=settings))


def test_a_source_with_too_few_different_questions_says_how_many_there_are():
    # One-digit sums: 9 * 10 / 2.
    with pytest.raises(UserError, match=r"45 different.*train_size \(70\) \+ data.eval_size \(20\) need 90"):
        load(Data(source="arithmetic", settings={"digits": 1}, train_size=70, eval_size=20))


def test_a_small_space_of_generated_questions_is_an_error_too():
    # gcd of two numbers from 1 to 2 knows four questions.
    settings = {"min_value": 1, "max_value": 2}
    with pytest.raises(UserError, match=r"reasoning_gym:gcd: [1-4] different questions"):
        load(Data(source="reasoning_gym:gcd", settings=settings, train_size=8, eval_size=8))


def test_a_file_is_split_by_the_data_seed(tmp_path: Path):
    data = Data(source=write_rows(tmp_path / "a.jsonl", [f"q{i}" for i in range(30)]), train_size=20, eval_size=10)
    questions = load(data)
    assert sorted(texts(questions.train + questions.eval)) == sorted(f"q{i}" for i in range(30))
    assert load(data) == questions
    assert texts(load(data.model_copy(update={"seed": 1})).eval) != texts(questions.eval)


def test_an_evaluation_question_written_otherwise_is_no_training_question(tmp_path: Path):
    source = write_rows(tmp_path / "a.jsonl", ["What is  2+2 ?", "what is 2+2?", "What is 3+3?"])
    for seed in range(4):
        questions = load(Data(source=source, train_size=1, eval_size=1, seed=seed))
        assert_disjoint(questions)
        assert questions.dropped == {"repeated": 1}


def test_refused_rows_are_reported_with_repeated_ones(tmp_path: Path):
    source = write_rows(tmp_path / "a.jsonl", ["a", "A", "", "b"])
    assert load(Data(source=source, train_size=1, eval_size=1)).dropped == {"no question": 1, "repeated": 1}


def test_a_file_takes_no_settings(tmp_path: Path):
    with pytest.raises(UserError, match=r"data\.settings: the file .* takes none"):
        load(Data(source=write_rows(tmp_path / "a.jsonl", ["a", "b"]), settings={"digits": 2}))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("What is  2+2 ?", "what is 2+2?", True),
        ("a\nb", "A b", True),
        ("sort 1 23", "sort 12 3", False),
        ("2+3", "2-3", False),
    ],
)
def test_questions_are_the_same_apart_from_case_and_spaces(one: str, other: str, same: bool):
    assert (normalise(one) == normalise(other)) == same


def test_drawing_ends_when_enough_are_found():
    def endless():
        number = 0
        while True:
            yield Question(id=str(number), text=str(number % 5), gold="", source="")
            number += 1

    found, dropped = drop_repeated(endless(), 3)
    assert texts(found) == ["0", "1", "2"]
    assert not dropped
