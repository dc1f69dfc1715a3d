import pytest

from tasks.reward.statements import expression_of, last_expression, whole_expression


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("3 + 4 = 7", "3 + 4 = 7"),
        ("2**3 + 3**2", "2**3 + 3**2"),
        (r"So the answer is $\frac{1}{2}$.", r"\frac{1}{2}"),
        (r"It is \(x\), then \[ \sqrt{2} \]", r"\sqrt{2}"),
        ("The point is $(1, 2)$ as we saw", "(1, 2)"),
        ("Thus $x = 5$", "x = 5"),
        (r"Thus $5\text{ cm}$", r"5\text{ cm}"),
        (r"\frac{1}{2} it is", r"\frac{1}{2}"),
        ("It costs $5 and later $6", "$6"),
        ("It costs $7.50.", "$7.50"),
        ("She sold 64 boxes, overall.", r"64 \text{boxes}"),
        ("It came to 64, all told, which covers the rent.", "64"),
        ("The area is 40 cm^2.", r"40 \text{cm^2}"),
        ("about 1,234,567 people", r"1,234,567 \text{people}"),
        ("8-3", "8-3"),
        ("on 1/2/2024", "1/2/2024"),
        ("first 4\nthen 5", "5"),
        ("after 2 days and 3 nights", r"3 \text{nights}"),
        ("I have a 5", "5"),
        ("=> 5", "5"),
        ("It is .5", ".5"),
        ("Paris", "Paris"),
        ("6只鸟 = 10只", r"10 \text{只}"),
    ],
)
def test_a_text_says_its_last_expression(text: str, expression: str):
    assert last_expression(text) == expression


@pytest.mark.parametrize("text", ["It is 1 or 2 or 3", "1, 2, 3", "1; 2", "2 and 3", "5 apples or 6 apples"])
def test_guesses_stay_together(text: str):
    assert "," in last_expression(text) or ";" in last_expression(text)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("The total is **123**. We used 2 steps.", "123"),
        ("The total is **$1,234.50**. We used 2 steps.", "$1,234.50"),
        ("First **12**, finally **42**. We used 2 steps.", "42"),
        ("**1.** Add them.\n**2.** We get 7", "7"),
        ("**Step 2** gives 7", "7"),
    ],
)
def test_a_bold_number_is_what_a_text_says(text: str, expression: str):
    assert last_expression(text) == expression


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("5, because 2+3=5", "5"),
        ("5 (because 2+3)", "5"),
        ("5 apples for 3 children", r"5 \text{apples}"),
        ("approximately 3.14", "3.14"),
        ("10 - 3 = 7 apples, all told 9", r"10 - 3 = 7 \text{apples}"),
        ("5 times 3 equals 15", r"5 \times 3 = 15"),
        ("$5 or $6", "$5, $6"),
        ("not 5 but 6", "6"),
        ("5. Because it fits.", "5"),
        ("2 million dollars", r"2 \text{million dollars}"),
    ],
)
def test_behind_a_label_a_statement_says_what_it_begins_with(text: str, expression: str):
    assert expression_of(text, begins=True) == expression


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("18 dollars", "18 dollars"),
        (r"x = 5 \text{ or } x = 3", r"x = 5 \text{ or } x = 3"),
        ("The total is 18 dollars.", r"18 \text{dollars}"),
        ("5, because 2+3=5", "5"),
        (r"\text{Evelyn}", "Evelyn"),
        ("$ 5 $.", "5"),
    ],
)
def test_an_answer_alone_is_taken_whole_unless_it_is_a_sentence(text: str, expression: str):
    assert whole_expression(text) == expression
