import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UserError
from tasks.dataset.arithmetic import demonstration, questions
from tasks.records.question import Question

TERM = re.compile(r"(\d+)([+-])(\d+)=\?")
RESPONSE = re.compile(r"<think>(.*)</think><answer>(\d+)</answer>")


def ask(text: str) -> Question:
    return Question(id="q", text=text, gold="", source="arithmetic")


def answer_of(response: str) -> str:
    match = RESPONSE.fullmatch(response)
    assert match, response
    return match[2]


def test_every_sum_of_two_digit_numbers_is_asked_once():
    asked = questions({}, seed=0)
    # 90 numbers from 10 to 99, in unordered pairs: 90 * 91 / 2.
    assert len({question.text for question in asked}) == len(asked) == 4095
    assert len({question.id for question in asked}) == len(asked)


def test_a_sum_is_asked_in_one_order_only_and_both_orders_occur():
    terms = [TERM.fullmatch(question.text) for question in questions({}, seed=0)]
    pairs = [(int(term[1]), int(term[3])) for term in terms if term]
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert any(a < b for a, b in pairs) and any(a > b for a, b in pairs)


def test_golds_are_right_and_differences_never_negative():
    asked = questions({"digits": 1, "operations": "+-"}, seed=0)
    # 9 * 10 / 2 = 45 unordered pairs, and as many differences of one-digit numbers a >= b.
    assert len(asked) == 45 + 45
    for question in asked:
        match = TERM.fullmatch(question.text)
        assert match
        a, b = int(match[1]), int(match[3])
        assert int(question.gold) == (a + b if match[2] == "+" else a - b) >= 0


def test_the_seed_alone_decides_the_order():
    assert questions({}, seed=1) == questions({}, seed=1)
    assert questions({}, seed=1) != questions({}, seed=2)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"digit": 2}, "data.settings.digit: Extra inputs.* knows digits, operations, working"),
        ({"operations": "*"}, "data.settings.operations"),
        ({"digits": 9}, "data.settings.digits"),
    ],
)
def test_wrong_settings_are_named(settings: dict, problem: str):
    with pytest.raises(UserError, match=problem):
        questions(settings, seed=0)


def test_a_right_demonstration_gives_the_answer_without_working():
    assert demonstration(ask("57+85=?"), False, random.Random(0)) == "<think></think><answer>142</answer>"


@pytest.mark.parametrize(
    ("text", "response"),
    [
        # 7+5 = 12, carry 1; 5+8+1 = 14.
        ("57+85=?", "<think>12 14</think><answer>142</answer>"),
        # 2-5 = -3, borrow 1; 5-3-1 = 1.
        ("52-35=?", "<think>-3 1</think><answer>17</answer>"),
    ],
)
def test_working_shows_each_column_with_its_carry(text: str, response: str):
    assert demonstration(ask(text), False, random.Random(0), working=True) == response


def test_a_wrong_answer_forgets_the_units_carry_where_there_is_one():
    # 7+5 = 12; 5+8 = 13 without the carry.
    wrong = {demonstration(ask("57+85=?"), True, random.Random(seed), working=True) for seed in range(50)}
    assert wrong == {"<think>12 13</think><answer>132</answer>"}


def test_wrong_answers_without_a_carry_spread_evenly_over_near_misses():
    rng = random.Random(0)
    answers = Counter(answer_of(demonstration(ask("53+85=?"), True, rng)) for _ in range(8000))
    # 138 with the units off by 1 or 2, or the tens off by 1 or 2: eight values, an eighth each.
    assert set(answers) == {"136", "137", "139", "140", "118", "128", "148", "158"}
    assert all(800 < count < 1200 for count in answers.values())


def test_a_wrong_demonstrations_working_agrees_with_its_answer():
    rng = random.Random(0)
    for _ in range(50):
        match = RESPONSE.fullmatch(demonstration(ask("53+85=?"), True, rng, working=True))
        assert match
        units, tens = map(int, match[1].split())
        carry, digit = divmod(units, 10)
        # The carry of a slip is carried on: 3+5 = 8 taken for 10 makes the tens 14.
        assert int(match[2]) == digit + 10 * tens and tens - carry in (11, 12, 13, 14, 15)


@given(st.sampled_from(questions({"operations": "+-"}, seed=0)), st.booleans(), st.integers(0, 2**32), st.booleans())
def test_demonstrations_are_right_when_they_should_be_and_short(
    question: Question, wrong: bool, seed: int, working: bool
):
    response = demonstration(question, wrong, random.Random(seed), working)
    assert (answer_of(response) != question.gold) == wrong
    # A tag is one token, every other character too, and EOS comes last.
    assert len(re.sub(r"<[^>]+>", "#", response)) + 1 <= 20
