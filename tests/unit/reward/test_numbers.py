from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.numbers import last_number, to_number


@pytest.mark.parametrize(
    "text", ["72", "72.0", "72.00", "72.", "+72", "072", " 72 ", "$72$", r"\$72", "72%", r"72\%", "144/2"]
)
def test_forms_of_a_number_have_one_value(text: str):
    assert to_number(text) == 72


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", -3),
        ("\u22123", -3),
        ("\u20133", -3),
        ("-0", 0),
        (".5", Fraction(1, 2)),
        ("1,234,567", 1234567),
        ("7{,}250", 7250),
        ("-1,000.25", Fraction(-100025, 100)),
        ("6/4", Fraction(3, 2)),
        (r"\(42\)", 42),
        (r"\[ 42 \]", 42),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction):
    assert to_number(text) == value


@pytest.mark.parametrize(
    "text",
    ["", ",", ".", "-", "1 or 2 or 3", "1, 2, 3", "1,2", "12,34", "1 2", "x2", "1e5", "1/0", "1.2.3", "a", "1" * 5000],
)
def test_what_is_not_one_number_has_no_value(text: str):
    assert to_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She sold 64 boxes, overall.", "64"),
        ("It came to 64, all told, which covers the rent.", "64"),
        ("The answer is \u22123", "-3"),
        ("3 - 10 = -7", "-7"),
        ("8-3", "3"),
        ("3-5", "5"),
        ("about 1,234,567 people", "1,234,567"),
        ("It costs $7.50.", "7.50"),
        ("14", "14"),
        ("it is 3/4 of it", "3/4"),
        ("no digits", None),
        ("", None),
        (",", None),
        ("on 1/2/2024", None),
        ("version 1.2.3", None),
        ("x2", None),
        ("1e5", None),
    ],
)
def test_the_last_number_is_found_whole(text: str, number: str | None):
    assert last_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "It is 1 or 2 or 3",
        "1, 2, 3",
        "1,2,3",
        "1 2 3",
        "2 and 3",
        "1; 2",
        "either 2, or 3.",
        "1,or 3",
        "1, 2345",
        "1,2345",
    ],
)
def test_a_list_of_guesses_has_no_last_number(text: str):
    assert last_number(text) is None


@pytest.mark.parametrize("text", ["2 + 3 = 5", "after 2 days and 3 nights", "first 4\nthen 5"])
def test_numbers_with_something_between_them_are_no_guesses(text: str):
    assert last_number(text) in ("5", "3")


@given(st.integers(-(10**12), 10**12), st.text("ab .,", max_size=5))
def test_an_integer_in_a_sentence_is_found_again(value: int, words: str):
    assert to_number(last_number(f"It is {value:,} {words}") or "") == value
    assert to_number(last_number(f"It is {value} {words}") or "") == value


@given(st.text("0123456789.,/-+$%{}\\()[] eE\u2212xor\n", max_size=60))
def test_no_text_raises_and_every_number_found_is_a_number(text: str):
    number = last_number(text)
    assert number is None or to_number(number) is not None
    to_number(text)
