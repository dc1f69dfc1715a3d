from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.reward import Cosine, Format, Overlong, Repetition
from tasks.records.question import Question
from tasks.reward.outcome import Answered
from tasks.reward.shaping import cosine, keeps_format, overlong, repetition
from tests.unit.reward.conftest import Answer


@pytest.mark.parametrize(
    "text",
    [
        "<think></think><answer>7</answer>",
        " <think>a\nb</think>\n<answer>7</answer>\n",
        "<think>a<b</think><answer>a b</answer>",
    ],
)
def test_the_form_is_one_thinking_part_and_one_answer(text: str, answer: Answer):
    assert keeps_format(Format(), answer("7", text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "<answer>7</answer>",
        "<think></think><answer></answer>",
        "<think></think><answer> </answer>",
        "<think></think><answer>7",
        "<think><answer>7</answer></think>",
        "<think></think><answer>7</answer><answer>7</answer>",
        "<think></think><think></think><answer>7</answer>",
        "<think></think><answer>7</answer> so there",
        "so <think></think><answer>7</answer>",
        "</think><answer>7</answer>",
    ],
)
def test_anything_else_breaks_the_form(text: str, answer: Answer):
    assert not keeps_format(Format(), answer("7", text))


@pytest.mark.parametrize(
    ("tokens", "value"), [(0, 0.0), (79, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (101, -1.0)]
)
def test_the_last_tokens_before_the_limit_cost_more_and_more(tokens: int, value: float, answer: Answer):
    # The characters don't count: there is but one.
    assert overlong(Overlong(max_tokens=100, buffer=20), answer("", "x", tokens=tokens)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("accuracy", "tokens", "value"),
    [
        (1.0, 0, 0.2),
        (1.0, 50, 0.15),
        (1.0, 99, 0.1),
        (1.0, 100, -1.0),
        (0.0, 0, -1.0),
        (0.0, 50, -0.5),
        (0.0, 25, -0.853553),  # (1 + cos 45°) / 2
        (0.0, 99, 0.0),
        (0.0, 101, -1.0),
        (0.5, 50, -0.5),
    ],
)
def test_right_answers_are_worth_more_the_shorter_and_wrong_ones_the_longer(
    accuracy: float, tokens: int, value: float, answer: Answer
):
    judged = replace(answer("", "x", tokens=tokens), accuracy=accuracy)
    assert cosine(Cosine(max_tokens=100), judged) == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0.0),
        ("a b c", 0.0),
        ("a b a b", -1 / 3),  # runs ab, ba, ab: one of three was there before
        ("a a a a a", -3 / 4),
        ("A a  a\na", -2 / 3),
        ("one", 0.0),
    ],
)
def test_runs_of_words_that_were_said_before_cost_their_share(text: str, value: float, answer: Answer):
    assert repetition(Repetition(words=2), answer("", text)) == pytest.approx(value)


@given(st.text("ab ", max_size=60), st.integers(1, 5), st.integers(0, 300), st.floats(0, 1))
def test_parts_stay_in_their_range(text: str, words: int, tokens: int, accuracy: float):
    answered = Answered(text, Question("q", "", "", ""), "stop", tokens, accuracy)
    assert -1.0 <= repetition(Repetition(words=words), answered) <= 0.0
    assert -1.0 <= overlong(Overlong(max_tokens=100, buffer=20), answered) <= 0.0
    assert -1.0 <= cosine(Cosine(max_tokens=100), answered) <= 1.0
