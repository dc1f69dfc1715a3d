import random
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.reward.answers import find_answer, read_answer
from tasks.reward.equality import LONGEST, compare_quickly, compare_symbolically


def quickly(answer: str, gold: str) -> bool | None:
    return compare_quickly(read_answer(answer).expression, read_answer(gold).expression)


def symbolically(answer: str, gold: str) -> bool:
    return compare_symbolically(read_answer(answer).expression, read_answer(gold).expression)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("72", "72.0"),
        ("$x^2$", "x^2"),
        (r"\(x\)", "x"),
        (r"\[ x \]", "$$x$$"),
        (r"\boxed{x}", "x."),
        ("1 234", "1,234"),
        ("\u22121", "-1"),
        ("x   +\n1", "x + 1"),
        ("35%", "35"),
        ("0.333333", "1/3"),
        (r"\frac12", "0.5"),
        ("3, 2", "2,3"),
        (r"\{2, 3\}", "2 and 3"),
        ("evelyn", r"\text{Evelyn}"),
        (r"\pi/2 \approx 1.57", "1.57"),
    ],
)
def test_texts_numbers_lists_and_words_are_equal_at_once(answer: str, gold: str):
    assert quickly(answer, gold) is True


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("71", "72"), ("7.2", "72"), ("1 2", "2"), ("3/4", "0.74"), ("seat", "east"), ("2,2", "2,3"), ("seven", "7")],
)
def test_others_are_not_equal_at_once(answer: str, gold: str):
    assert quickly(answer, gold) is False


@pytest.mark.parametrize(("answer", "gold"), [("x+1", "1+x"), (r"\sqrt{4}", "2"), ("ab", "ba"), ("(1,2)", "1,2")])
def test_anything_else_is_left_to_math_verify(answer: str, gold: str):
    assert quickly(answer, gold) is None


@pytest.mark.parametrize(
    ("answer", "gold", "equal"),
    [
        ("1+x", "x+1", True),
        ("0.333333", "1/3", True),
        ("0.33", "1/3", False),
        ("1 1/2", "1.5", True),
        ("1", "1 1/2", False),
        ("12 000", "12000", True),
        ("1e5", "100000", True),
        ("10^5", "1e5", True),
        (r"\frac 1 2", "0.5", True),
        (r"x = 5 \text{ or } x = 3", "5", False),
        ("x+0", "x", True),
        ("y", "x", False),
        ("2x + 3 = 8", "4x + 6 = 16", True),
        ("2x + 3 = 8", "4x + 6 = 17", False),
        ("y = 26,000 x", "y = 26000x", True),
        (r"V = 2\pi r", r"2\pi r", True),
        (r"2\sqrt{3} cm", r"2\sqrt{3}\text{ m}", False),
        ("cot x", r"1/\tan x", True),
    ],
)
def test_what_math_verify_is_asked_is_in_forms_that_it_reads(answer: str, gold: str, equal: bool):
    assert symbolically(answer, gold) is equal


def test_texts_that_are_too_long_to_parse_are_equal_only_if_they_are_the_same():
    long = "+".join(["x"] * LONGEST)
    assert quickly(long, long) is True
    assert quickly(long, "x") is False


def written_numbers(seed: int, count: int) -> Iterator[str]:
    """Numbers of GSM8K's kind in the forms that policies write them in."""
    rng = random.Random(seed)
    for _ in range(count):
        value = rng.choice([rng.randint(-20, 20), rng.randint(0, 5000), rng.randint(10**5, 10**9)])
        yield rng.choice(
            [
                str(value), f"{value:,}", f"{value}.0", f"{value}.", f"+{abs(value)}", f"0{abs(value)}", f"{value / 4}",
                f"{value / 100:.2f}", f"{value}/{rng.randint(1, 9)}", rf"\${value}", f"${value}$", f"{value:,}.50",
                f"{value:,}".replace(",", "{,}"), f"-{abs(value)}", f"\u2212{abs(value)}",
            ]
        )  # fmt: skip


def test_whatever_is_decided_at_once_math_verify_decides_the_same_way():
    golds, answers = list(written_numbers(0, 400)), list(written_numbers(1, 400))
    # Half of the pairs are of one value: the same number in another form.
    pairs = list(zip(golds, answers, strict=True)) + [(gold, gold.replace(",", "")) for gold in golds]
    decided = [(gold, answer, verdict) for gold, answer in pairs if (verdict := quickly(answer, gold)) is not None]
    assert len(decided) > 700 and {verdict for *_, verdict in decided} == {True, False}
    assert [(g, a, v) for g, a, v in decided if symbolically(a, g) is not v] == []


@given(st.text(max_size=40), st.text(r"0123456789.,/-+$%{}\()[] eE^xor", max_size=40))
@example(r"\boxed{", r"\boxed{}")
@settings(max_examples=200)
def test_no_text_raises_and_every_text_that_holds_something_equals_itself(first: str, second: str):
    for text in (first, second):
        assert quickly(f"x{text}", f"x{text}") in (True, False)
    assert quickly(first, second) in (True, False, None)


def written(number: Fraction) -> list[str]:
    """Forms of a number that a gold or an answer may have."""
    sign, size = "-" if number < 0 else "", abs(number)
    whole = [f"{sign}{size.numerator:,}", f"{sign}{size.numerator}.0", rf"{sign}{size.numerator}\text{{ apples}}"]
    return [
        f"{sign}{size.numerator}/{size.denominator}",
        rf"${sign}\frac{{{size.numerator}}}{{{size.denominator}}}$",
        rf"\dfrac{{{sign}{2 * size.numerator}}}{{{2 * size.denominator}}}",
        f"x = {sign}{size.numerator}/{size.denominator}",
        *(whole if number.denominator == 1 else []),
    ]


PLACES = (r"\boxed{ANSWER}", "<answer>ANSWER</answer>", "#### ANSWER", "The answer is ANSWER.", "Answer: ANSWER")


@given(
    st.fractions(-(10**5), 10**5, max_denominator=50) | st.integers(-(10**7), 10**7).map(Fraction),
    st.sampled_from([Fraction(1), Fraction(-1), Fraction(1, 7)]),
    st.data(),
)
def test_a_gold_in_any_form_wins_with_every_form_of_its_value_and_with_none_of_another(
    number: Fraction, step: Fraction, data: st.DataObject
):
    gold = data.draw(st.sampled_from(written(number)))
    place = data.draw(st.sampled_from(PLACES))
    for form in written(number):
        assert said(place.replace("ANSWER", form), gold), (gold, form)
    for form in written(number + step):
        assert not said(place.replace("ANSWER", form), gold), (gold, form)


def said(response: str, gold: str) -> bool:
    """Whether a response gives the gold, at once: in these forms nothing is left to math-verify but an assignment."""
    answer, expected = find_answer(response), read_answer(gold).expression
    if answer is None:
        return False
    verdict = compare_quickly(answer.expression, expected)
    return compare_symbolically(answer.expression, expected) if verdict is None else verdict
