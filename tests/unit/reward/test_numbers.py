from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.notation import normalise
from tasks.reward.numbers import Quantity, is_rounded, stated_quantity, to_quantity


def value(text: str) -> Fraction | None:
    quantity = to_quantity(normalise(text))
    return quantity.value if quantity else None


@pytest.mark.parametrize(
    "text",
    [
        "72", "72.0", "72.00", "72.", "+72", "072", " 72 ", "(72)", r"\$72", "$72", "72$", "72%", r"72\%", "144/2",
        "72 people", r"72\text{ cm}", "72 cm^2", "72^\\circ", "72°", r"\frac{144}{2}", "7.2e1", "7.2 x 10^1",
    ],
)  # fmt: skip
def test_forms_of_a_number_have_one_value(text: str):
    assert value(text) == 72


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-3", -3),
        ("\u22123", -3),
        ("\u20133", -3),
        ("-0", 0),
        ("-$5", -5),
        (".5", Fraction(1, 2)),
        ("1,234,567", 1234567),
        ("1 234 567", 1234567),
        ("1'234", 1234),
        ("7{,}250", 7250),
        (r"7\,250", 7250),
        ("-1,000.25", Fraction(-100025, 100)),
        ("6/4", Fraction(3, 2)),
        ("1 1/2", Fraction(3, 2)),
        (r"1\frac12", Fraction(3, 2)),
        ("-1½", Fraction(-3, 2)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        ("10^5", 100000),
        ("2^{-3}", Fraction(1, 8)),
        (r"6.62\times 10^{-34}", Fraction(662, 10**36)),
        ("2 million", 2000000),
        ("$5k", 5000),
        ("120_{5}", 120),
    ],
)
def test_a_number_is_read_exactly(text: str, expected: Fraction):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", ",", ".", "-", "1 or 2 or 3", "1, 2, 3", "1,2", "12,34", "1 2", "x2", "2x", "2ab", "1/0", "1.2.3", "a",
        "1" * 5000, "9^9999", "1e99999", "11 6/6", "2 pi", "5!", "10:30", "1/2/2024", "42abc", "4 4/0", "+-3", "3 + 4",
    ],
)  # fmt: skip
def test_what_is_not_one_number_has_no_value(text: str):
    assert value(text) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("x = 5", 5), ("5 = x", 5), ("3 + 4 = 7", 7), ("x = y", None), ("7 = 3 + 4", None)]
)
def test_an_equation_states_the_number_that_it_comes_to(text: str, expected: int | None):
    quantity = stated_quantity(text)
    assert (quantity.value if quantity else None) == expected


@pytest.mark.parametrize(
    ("answer", "gold", "equal"),
    [("35%", "35", True), ("35", "35%", True), ("0.35", "35%", True), ("35%", "0.35", True), ("0.35", "35", False)],
)
def test_a_percentage_is_its_number_or_a_hundredth_of_it(answer: str, gold: str, equal: bool):
    left, right = to_quantity(answer), to_quantity(gold)
    assert left and right and left.equals(right) is equal


@pytest.mark.parametrize(
    ("decimal", "exact", "rounded"),
    [
        ("0.333333", "1/3", True),
        ("0.33333", "1/3", False),
        ("0.333334", "1/3", False),
        ("0.666667", "2/3", True),
        ("333333.33", "1000000/3", True),
        ("0.000000333333", "1/3000000", True),
        ("0.2500001", "1/4", False),
    ],
)
def test_a_decimal_is_a_rounded_value_if_it_shows_six_right_digits(decimal: str, exact: str, rounded: bool):
    given = to_quantity(decimal)
    assert given and given.last and is_rounded(given.value, given.last, Fraction(exact)) is rounded


numbers = st.fractions(-(10**6), 10**6, max_denominator=999)
wholes = st.integers(-(10**9), 10**9)


def forms(number: Fraction) -> list[str]:
    """Every accepted form of a number, by construction."""
    whole = number.denominator == 1
    sign, size = "-" if number < 0 else "", abs(number)
    fraction = [
        f"{sign}{size.numerator}/{size.denominator}",
        rf"{sign}\frac{{{size.numerator}}}{{{size.denominator}}}",
        rf"\frac{{{sign}{size.numerator * 3}}}{{{size.denominator * 3}}}",
    ]
    mixed = size.numerator // size.denominator, size.numerator % size.denominator
    if mixed[0] and mixed[1]:
        fraction += [f"{sign}{mixed[0]} {mixed[1]}/{size.denominator}"]
        fraction += [rf"{sign}{mixed[0]}\frac{{{mixed[1]}}}{{{size.denominator}}}"]
    if not whole:
        return fraction
    written = f"{size.numerator:,}"
    return [
        *fraction,
        *(sign + written.replace(",", separator) for separator in (",", "", " ", "{,}", r"\,", r",\!", "\u202f")),
        f"{sign}{written}.0", f"\u2212{written}" if sign else f"+{written}", f"{sign}${written}",
        rf"{sign}\${written}", rf"{sign}{written}\text{{ apples}}", f"{sign}{written} apples", f"$ {sign}{written} $",
        rf"\text{{{sign}{written}}}", f"x = {sign}{written}", f"{sign}{written}.",
    ]  # fmt: skip


def read(form: str) -> Quantity | None:
    return stated_quantity(normalise(form).strip("$ ") if form.startswith("$ ") else normalise(form))


@given(numbers | wholes.map(Fraction))
def test_all_accepted_forms_of_a_number_are_read_as_its_value(number: Fraction):
    for form in forms(number):
        quantity = read(form)
        assert quantity is not None and quantity.value == number, form


@given(st.text("0123456789.,/-+$%{}\\()[] eE^_\u2212xor\n", max_size=60))
def test_no_text_raises(text: str):
    stated_quantity(normalise(text))
