import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.data import Data
from configs.errors import UserError
from tasks.dataset import sources
from tasks.dataset.duplicates import drop_repeated, normalise
from tasks.dataset.sources import Questions, apportion, check_sources, choose_questions, count_reasons, read_sources
from tasks.records.question import Question


def load(data: Data) -> Questions:
    return choose_questions(data, *read_sources(data))


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


def test_before_anything_starts_sizes_are_checked_without_comparing_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for compared in ("drop_contaminated", "drop_near_repeated"):
        monkeypatch.delattr(sources, compared)
    source = write_rows(tmp_path / "a.jsonl", ["one", "two", "three"])
    check_sources(Data(source=source, train_size=2, eval_size=1, near_duplicates=0.9))
    with pytest.raises(
        UserError, match=r"a\.jsonl: 3 different questions, but data\.train_size \(3\) \+ data\.eval_size"
    ):
        check_sources(Data(source=source, train_size=3, eval_size=1))


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
        assert count_reasons(questions.dropped) == {"repeated": 1}


def test_refused_rows_are_reported_with_repeated_ones(tmp_path: Path):
    source = write_rows(tmp_path / "a.jsonl", ["a", "A", "", "b"])
    dropped = load(Data(source=source, train_size=1, eval_size=1)).dropped
    assert count_reasons(dropped) == {"no question": 1, "repeated": 1}
    # The second line repeats the first, whichever is drawn first afterwards.
    assert {finding.id for finding in dropped} == {"a.jsonl:2", "a.jsonl:3"}


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


def gold_file(path: Path, *asked: str) -> dict[str, str]:
    return {"source": write_rows(path, list(asked))}


def test_sources_are_mixed_by_weight(tmp_path: Path):
    many = [f"many {i}" for i in range(40)]
    few = [f"few {i}" for i in range(40)]
    sources = [gold_file(tmp_path / "many.jsonl", *many) | {"weight": 3}, gold_file(tmp_path / "few.jsonl", *few)]
    questions = load(Data.model_validate({"sources": sources, "train_size": 16, "eval_size": 8}))
    assert Counter(question.source for question in questions.train) == {"many.jsonl": 12, "few.jsonl": 4}
    assert Counter(question.source for question in questions.eval) == {"many.jsonl": 6, "few.jsonl": 2}
    assert_disjoint(questions)


def test_generated_sources_and_tables_mix(tmp_path: Path):
    sources = [
        {"source": "reasoning_gym:gcd"},
        {"source": "reasoning_gym:gcd", "name": "large", "settings": {"min_value": 500}},
        gold_file(tmp_path / "a.jsonl", *[f"q{i}" for i in range(20)]),
    ]
    questions = load(Data.model_validate({"sources": sources, "train_size": 12, "eval_size": 3}))
    assert Counter(question.source for question in questions.train) == {
        "reasoning_gym:gcd": 4,
        "large": 4,
        "a.jsonl": 4,
    }
    assert len({question.id for question in questions.train + questions.eval}) == 15


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [(10, [1, 1], [5, 5]), (3, [1, 1], [2, 1]), (10, [3, 1], [8, 2]), (7, [1, 2, 4], [1, 2, 4]), (1, [1, 9], [0, 1])],
)
def test_a_total_is_split_in_proportion(total: int, weights: list[float], parts: list[int]):
    # (10, [3, 1]): 7.5 and 2.5 leave one over, which goes to the first of equal remainders.
    assert apportion(total, weights) == parts


@given(st.integers(0, 1000), st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
def test_the_parts_of_a_total_add_up_and_are_off_by_less_than_one(total: int, weights: list[float]):
    parts = apportion(total, weights)
    assert sum(parts) == total
    assert all(abs(part - total * weight / sum(weights)) < 1 for part, weight in zip(parts, weights, strict=True))


def test_a_question_of_two_sources_is_asked_once(tmp_path: Path):
    sources = [gold_file(tmp_path / "a.jsonl", "x", "y", "z"), gold_file(tmp_path / "b.jsonl", "X", "u", "v")]
    questions = load(Data.model_validate({"sources": sources, "train_size": 2, "eval_size": 2}))
    assert_disjoint(questions)
    assert count_reasons(questions.dropped) == {"repeated": 1}
    assert [finding.id for finding in questions.dropped] == ["b.jsonl:1"]


def test_without_a_size_all_questions_are_taken(tmp_path: Path):
    data = {"train_size": None, "eval_size": 2, **gold_file(tmp_path / "a.jsonl", *"abcdefg")}
    assert len(load(Data.model_validate(data)).train) == 5


def test_without_a_size_a_mixture_keeps_its_weights(tmp_path: Path):
    sources = [
        gold_file(tmp_path / "a.jsonl", *[f"a{i}" for i in range(30)]) | {"weight": 2},
        gold_file(tmp_path / "b.jsonl", *[f"b{i}" for i in range(5)]),
    ]
    evaluation = gold_file(tmp_path / "e.jsonl", "e")
    data = {"sources": sources, "train_size": None, "eval": evaluation, "eval_size": None}
    counts = Counter(question.source for question in load(Data.model_validate(data)).train)
    # b is used up; a has twice its weight.
    assert counts == {"a.jsonl": 10, "b.jsonl": 5}


def test_an_evaluation_source_of_its_own_is_kept_out_of_training(tmp_path: Path):
    data = {
        **gold_file(tmp_path / "train.jsonl", "what is 2+2?", "What is 3+3?"),
        "eval": gold_file(tmp_path / "eval.jsonl", "What is  2+2 ?"),
        "train_size": None,
        "eval_size": None,
    }
    questions = load(Data.model_validate(data))
    assert (texts(questions.train), texts(questions.eval)) == (["What is 3+3?"], ["What is  2+2 ?"])
    assert [(finding.reason, finding.id) for finding in questions.dropped] == [
        ("in the evaluation set", "train.jsonl:1")
    ]
    assert questions.rows == {"train.jsonl": 2, "eval.jsonl": 1}


def test_a_generated_evaluation_source_draws_its_own_questions():
    gym = {"source": "reasoning_gym:chain_sum", "settings": {"min_terms": 4, "max_terms": 4}}
    data = Data.model_validate({**gym, "eval": {**gym, "name": "held out"}, "train_size": 20, "eval_size": 10})
    questions = load(data)
    assert (len(questions.train), len(questions.eval)) == (20, 10)
    assert_disjoint(questions)


def test_an_evaluation_source_that_is_too_small_says_so(tmp_path: Path):
    data = {"source": "arithmetic", "eval": gold_file(tmp_path / "e.jsonl", "a"), "train_size": 5, "eval_size": 2}
    with pytest.raises(UserError, match=r"e\.jsonl: 1 different questions, but data\.eval_size \(2\) need 2"):
        load(Data.model_validate(data))


def test_questions_of_one_wording_stay_in_generated_sources_and_go_in_tables(tmp_path: Path):
    # reasoning-gym's questions share many words in a row; that is their form.
    assert not load(Data(source="reasoning_gym:number_sorting", train_size=30, eval_size=10)).dropped
    shared = "a farmer has seven cows and sells two of them at the market for"
    source = write_rows(tmp_path / "a.jsonl", [f"In May {shared} 12", f"{shared} 15 and why", "something else"])
    found = [load(Data(source=source, train_size=1, eval_size=1, seed=seed)).dropped for seed in range(6)]
    # A hit unless both are training questions.
    assert {reason for dropped in found for reason in count_reasons(dropped)} == {"in the evaluation set"}


def test_near_duplicates_are_dropped_where_the_recipe_says_so(tmp_path: Path):
    long = "the quick brown fox jumps over the lazy dog near the old river bank"
    data = {**gold_file(tmp_path / "a.jsonl", long, long + " today", "x", "y"), "train_size": None, "eval_size": 1}
    near = load(Data.model_validate(data | {"near_duplicates": 0.8, "contamination_words": None}))
    assert count_reasons(near.dropped) == {"nearly repeated": 1}
    assert len(near.train) == 2
