import json

import pytest

from configs.reward import Choice, Exact, Json, Math, Numeric, Python, ReasoningGym, Regex
from tasks.dataset.gym import generate_questions
from tasks.reward import checkers
from tasks.reward.outcome import Answered, Outcome
from tests.unit.reward.conftest import Answer


@pytest.mark.parametrize("text", ["Paris", "paris", " Paris. ", "PARIS", "<answer>Paris</answer>"])
def test_exact_looks_past_case_spaces_and_a_full_stop(text: str, answer: Answer):
    assert checkers.exact(Exact(), answer("Paris", text))


@pytest.mark.parametrize("text", ["Paris, France", "Pari", "Pa ris", ""])
def test_exact_takes_nothing_else(text: str, answer: Answer):
    assert checkers.exact(Exact(), answer("Paris", text)) is False


@pytest.mark.parametrize("text", ["72", "72.0", "72.00", "72.", "+72", "072"])
def test_numeric_compares_values(text: str, answer: Answer):
    assert checkers.numeric(Numeric(), answer("72", text))


@pytest.mark.parametrize(
    ("gold", "text"),
    [("72", "72.01"), ("0", "6,000"), ("250", "7,250"), ("1", "1,234,567"), ("1", "14"), ("3", "-3"), ("35", "0.35")],
)
def test_numeric_takes_no_part_of_a_number(gold: str, text: str, answer: Answer):
    assert checkers.numeric(Numeric(), answer(gold, text)) is False


def test_numeric_is_exact_where_floats_are_not(answer: Answer):
    assert checkers.numeric(Numeric(), answer("0.3", "0.30"))
    assert checkers.numeric(Numeric(), answer("9007199254740992", "9007199254740993")) is False


@pytest.mark.parametrize("gold", ["", "1,2", "abc"])
def test_numeric_cant_check_a_gold_that_is_not_one_number(gold: str, answer: Answer):
    assert checkers.numeric(Numeric(), answer(gold, "1")) is None


@pytest.mark.parametrize(
    ("gold", "text", "outcome"),
    [
        ("42", r"\boxed{42}", Outcome(1.0)),
        ("42", r"\boxed{41}", Outcome(0.0)),
        ("42", "I bought seven apples and six pears, 42 in all", Outcome(1.0)),
        ("42", "I bought seven apples and six pears, 41 in all", Outcome(0.0)),
        ("", "anything", Outcome(None, "unscorable")),
        ("x", "", Outcome(0.0)),
        ("2x", r"\boxed{x+x}", None),
    ],
)
def test_math_decides_plain_numbers_at_once_and_leaves_expressions(
    gold: str, text: str, outcome: Outcome | None, answer: Answer
):
    assert checkers.math_at_once(Math(), answer(gold, text)) == outcome


@pytest.mark.parametrize(
    ("gold", "text", "right"),
    [
        ("2x", r"\boxed{x+x}", True),
        ("2x", r"\boxed{x+1}", False),
        (r"\frac{1}{2}", r"So the answer is $\frac{2}{4}$.", True),
        ("2", r"So the answer is $\frac{1}{2}$.", False),
        ("(1,2)", "The point is $(1, 2)$ as we have seen", True),
        ("2x", r"Answer: \(x + x\)", True),
    ],
)
def test_math_asks_math_verify_about_the_rest(gold: str, text: str, right: bool, answer: Answer):
    assert checkers.math(Math(), answer(gold, text)) is right


LETTERS = ["C", "c", "(C)", "C.", "C) Paris", "C. Paris", r"\boxed{C}", r"\boxed{\text{(C)}}", "<answer>c</answer>"]
SENTENCES = [
    "The answer is (C).",
    "The correct option is C",
    "#### C",
    "**C**",
    "Answer: C",
    "First A, then the answer: C",
]


@pytest.mark.parametrize("text", [*LETTERS, *SENTENCES])
def test_choice_finds_the_letter(text: str, answer: Answer):
    assert checkers.choice(Choice(), answer("C", text))
    assert checkers.choice(Choice(), answer("B", text)) is False


@pytest.mark.parametrize("text", ["", "A cat", "I think so", "A or C", r"\boxed{A, C}", "Carbon", "Paris", "AC"])
def test_choice_takes_no_two_letters_and_no_words(text: str, answer: Answer):
    assert checkers.choice(Choice(), answer("C", text)) is False
    assert checkers.choice(Choice(), answer("A", text)) is False


@pytest.mark.parametrize("gold", ["", "Paris", "AB"])
def test_choice_cant_check_a_gold_that_is_no_letter(gold: str, answer: Answer):
    assert checkers.choice(Choice(), answer(gold, "C")) is None


def test_regex_searches_behind_the_thinking_for_a_pattern_with_the_gold(answer: Answer):
    part = Regex(pattern=r"Result: {gold}\b")
    assert checkers.regex(part, answer("4.2", "<think>no</think> Result: 4.2"))
    assert checkers.regex(part, answer("4.2", "Result: 412")) is False
    assert checkers.regex(part, answer("4.2", "<think>Result: 4.2</think> Result: 5")) is False
    assert checkers.regex(part, answer("4.2", "<think>Result: 4.2")) is False
    assert checkers.regex(part, answer("", "Result: ")) is None
    assert checkers.regex(Regex(pattern="^yes"), answer("", "yes"))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": [2, true]}',
        '{"b": [2.0, true], "a": 1.0}',
        '<answer>{"b": [2, true], "a": 1}</answer>',
        'Here:\n```json\n{"a": 1, "b": [2, true]}\n```',
    ],
)
def test_json_compares_values(text: str, answer: Answer):
    assert checkers.json_value(Json(), answer('{"a": 1, "b": [2, true]}', text))


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1}', '{"a": 1, "b": [2, 1]}', '{"a": 1, "b": ["2", true]}', "[" * 10**5]
)
def test_json_takes_nothing_else(text: str, answer: Answer):
    assert checkers.json_value(Json(), answer('{"a": 1, "b": [2, true]}', text)) is False


def test_json_numbers_are_compared_exactly(answer: Answer):
    assert checkers.json_value(Json(), answer("9007199254740992", "9007199254740993")) is False
    assert checkers.json_value(Json(), answer("0", "-0.0"))


def test_json_finds_the_gold_under_a_key(answer: Answer):
    part = Json(field="answer")
    assert checkers.json_value(part, answer("42", '{"answer": 42}'))
    assert checkers.json_value(part, answer("42", '{"answer": "42"}'))
    assert checkers.json_value(part, answer("Paris", '{"why": "x", "answer": "Paris"}'))
    for text in ('{"answer": 41}', '{"result": 42}', "42", '["answer"]', '{"answer": NaN}'):
        assert checkers.json_value(part, answer("42", text)) is False


@pytest.mark.parametrize("gold", ["", "not JSON", "NaN"])
def test_json_cant_check_a_gold_that_is_no_json(gold: str, answer: Answer):
    assert checkers.json_value(Json(), answer(gold, "1")) is None


def gym_sample(task: str, answer: Answer, text: str = "", **settings: object) -> Answered:
    [question] = generate_questions(task, dict(settings), seed=0, size=1)
    return answer(question.gold, text or question.gold, metadata=question.metadata)


def test_reasoning_gym_asks_the_tasks_own_verifier(answer: Answer):
    countdown = gym_sample("countdown", answer)
    numbers = json.loads(countdown.question.metadata)["metadata"]["numbers"]
    assert checkers.reasoning_gym(ReasoningGym(), countdown)
    # Another way to write the same sum is right too, which no comparison of texts would find.
    assert checkers.reasoning_gym(ReasoningGym(), gym_sample("countdown", answer, f"({countdown.question.gold})"))
    wrong = gym_sample("countdown", answer, " + ".join(map(str, numbers)))
    assert checkers.reasoning_gym(ReasoningGym(), wrong) is False


def test_reasoning_gym_gives_nothing_for_partial_marks(answer: Answer):
    gold = gym_sample("chain_sum", answer).question.gold
    # The verifier alone gives a share of the marks to any text that contains the gold.
    assert checkers.reasoning_gym(ReasoningGym(), gym_sample("chain_sum", answer, f"1 2 3 {gold} 5")) is False


def test_reasoning_gym_takes_any_reading_of_the_answer(answer: Answer):
    gold = gym_sample("chain_sum", answer).question.gold
    for text in (gold, f"The sum is {gold}.", f"<think>1</think><answer>{gold}</answer>"):
        assert checkers.reasoning_gym(ReasoningGym(), gym_sample("chain_sum", answer, text))
    assert checkers.reasoning_gym(ReasoningGym(), gym_sample("number_sorting", answer))


def test_python_calls_the_users_function(answer: Answer):
    part = Python(function="tests.unit.reward.samples.by_length")
    assert checkers.python(part, answer("", "12345")) == 0.5
