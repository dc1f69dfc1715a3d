import json

import pytest

from tasks.dataset.gym import generate_questions
from tasks.dataset.question import Question
from tasks.reward.checkers import CHECKERS, exact, numeric, reasoning_gym


def gold(text: str) -> Question:
    return Question(id="q", text="", gold=text, source="test")


@pytest.mark.parametrize("answer", ["Paris", "paris", " Paris. ", "PARIS"])
def test_exact_looks_past_case_spaces_and_a_full_stop(answer: str):
    assert exact([answer], gold("Paris"))


@pytest.mark.parametrize("answer", ["Paris, France", "Pari", "Pa ris", ""])
def test_exact_takes_nothing_else(answer: str):
    assert exact([answer], gold("Paris")) is False


@pytest.mark.parametrize("answer", ["72", "72.0", "72.00", "72.", "+72", "072"])
def test_numeric_compares_values(answer: str):
    assert numeric([answer], gold("72"))


@pytest.mark.parametrize(
    ("right", "answer"),
    [("72", "72.01"), ("0", "6,000"), ("250", "7,250"), ("1", "1,234,567"), ("1", "14"), ("3", "-3"), ("35", "0.35")],
)
def test_numeric_takes_no_part_of_a_number(right: str, answer: str):
    assert numeric([answer], gold(right)) is False


def test_numeric_is_exact_where_floats_are_not():
    assert numeric(["0.30"], gold("0.3"))
    assert numeric(["9007199254740993"], gold("9007199254740992")) is False


@pytest.mark.parametrize("value", ["42", "42.0"])
def test_numeric_golds_that_were_numbers_are_matched(value: str):
    assert numeric(["42"], gold(value))


@pytest.mark.parametrize(
    ("checker", "question"),
    [("exact", gold("")), ("numeric", gold("")), ("numeric", gold("1,2")), ("numeric", gold("abc"))],
)
@pytest.mark.parametrize("answers", [[], [""], ["1"], ["abc"]])
def test_a_gold_that_cant_be_compared_makes_the_question_uncheckable(
    checker: str, question: Question, answers: list[str]
):
    assert CHECKERS[checker](answers, question) is None


@pytest.mark.parametrize("checker", CHECKERS)
def test_no_answer_is_not_right(checker: str):
    [question] = generate_questions("gcd", {}, seed=0, size=1)
    assert CHECKERS[checker]([], question) is False


def test_reasoning_gym_asks_the_tasks_own_verifier():
    [question] = generate_questions("countdown", {}, seed=0, size=1)
    numbers = json.loads(question.metadata)["metadata"]["numbers"]
    assert reasoning_gym([question.gold], question)
    # Another way to write the same sum is right too, which no comparison of texts would find.
    assert reasoning_gym([f"({question.gold})"], question)
    assert not reasoning_gym([" + ".join(map(str, numbers))], question)


def test_reasoning_gym_gives_nothing_for_partial_marks():
    [question] = generate_questions("chain_sum", {}, seed=0, size=1)
    assert reasoning_gym([question.gold], question)
    # Its verifier alone gives a share of the marks to any text that contains the gold.
    assert not reasoning_gym([f"1 2 3 {question.gold} 5"], question)


def test_reasoning_gym_takes_any_reading_of_the_answer():
    [question] = generate_questions("number_sorting", {}, seed=0, size=1)
    assert reasoning_gym([question.gold, "1"], question)
