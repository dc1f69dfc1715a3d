r"""Answers that were read wrongly in use, U01 to U07 and U38 to U45: the first rows of each are those found, the others
are of the same kind.
"""

import pytest

from configs.reward import Choice, Exact, Numeric
from tasks.dataset.readers import math as read_math
from tasks.reward import checkers
from tasks.reward.scorer import gold_statuses
from tests.unit.reward.conftest import Answer, MakeScorer

Row = tuple[str, str, bool]

EXPONENTS: list[Row] = [
    ("2", "#### 40 cm^2", False),
    ("40", "#### 40 cm^2", True),
    ("5", "Answer: 10^5", False),
    ("100000", "Answer: 10^5", True),
    ("3", "The answer is 5 x 10^3", False),
    ("5000", "The answer is 5 x 10^3", True),
    ("100000", "The answer is 10^5", True),
    ("3", "#### 5 m^3", False),
    ("5", "The volume is 5 cm³.", True),
    ("8", "Answer: 2**3", True),
    ("3", "Answer: 2**3", False),
    ("10", "Answer: 2^{10}", False),
    ("2", "Answer: x_2", False),
    ("2", "Answer: x2", False),
    ("2", "Answer: 1/2", False),
    ("3", "Answer: 10^{-3}", False),
    ("602200", "6.022 \u00d7 10^5", True),
    ("5000", "It is 5·10³.", True),
]
CLOSE: list[Row] = [
    (r"$\frac{1}{3^{60}}$", r"\boxed{\frac{1}{3^{59}}}", False),
    ("0.0000003", r"\boxed{0.0000004}", False),
    (r"6.62\times 10^{-34}", r"\boxed{9.1\times 10^{-31}}", False),
    ("1.0000001", r"\boxed{1.0000002}", False),
    (r"\frac{1}{3}", r"\boxed{0.333333}", True),
    (r"\frac{1}{3}", r"\boxed{0.33}", False),
    (r"\frac{1}{7}", r"\boxed{0.142858}", False),
    (r"\pi", r"\boxed{3.141593}", True),
    (r"\sqrt{2}", r"\boxed{1.4142135623730951}", True),
    ("0.5", r"\boxed{0.5000001}", False),
    ("693", r"\boxed{692.99999999999999999}", False),
    (r"2^{-40}", r"\boxed{2^{-41}}", False),
    (r"e^{-50}", r"\boxed{e^{-51}}", False),
    (r"\sqrt{2}\cdot 10^{-9}", r"\boxed{\sqrt{3}\cdot10^{-9}}", False),
    (r"10^{-20}x", r"\boxed{2\cdot 10^{-20}x}", False),
    ("(0.0000001, 1)", r"\boxed{(0.0000002, 1)}", False),
    ("[0.0000001, 1]", r"\boxed{[0.0000002, 1]}", False),
    (r"\begin{pmatrix}10^{-8}\end{pmatrix}", r"\boxed{\begin{pmatrix}10^{-9}\end{pmatrix}}", False),
    ("f(2) = f(3) + 4", r"\boxed{f(5) = f(7) + 4}", False),
]
SEPARATORS: list[Row] = [
    ("10080", r"\boxed{10,\!080}", True),
    ("306956.63", r"\boxed{306,\!956.63}", True),
    ("12000", r"\boxed{12\,000}", True),
    ("1234567", r"\boxed{1\;234\;567}", True),
    ("1234567", r"\boxed{1~234~567}", True),
    ("1234567", "\\boxed{1\u2009234\u2009567}", True),
    ("1234567", "\\boxed{1\u00a0234\u00a0567}", True),
    ("1234567", r"\boxed{1{,}234{,}567}", True),
    (r"10,\!080", r"\boxed{10080}", True),
    (r"12\,000", "The answer is 12,000.", True),
    ("12345", r"\boxed{12\,345\text{ km}}", True),
    ("234", r"\boxed{1\,234}", False),
]
WRAPPERS: list[Row] = [
    ("42", r"\fbox{42}", True),
    ("7", r"\boxed 7", True),
    ("13", r"\boxed{\text{13}}", True),
    ("18", r"\boxed{18\text{ dollars}}", True),
    ("1/2", r"\boxed{\frac{1}{2}}", True),
    ("5", r"\boxed{x=5}", True),
    ("42", r"first \boxed{41}, no: \fbox{42}", True),
    ("18", "<answer>18 dollars</answer>", True),
    ("13", r"\boxed{\mathbf{13}}", True),
    ("1/2", r"\fbox{\dfrac{1}{2}}", True),
    ("12", r"so $\boxed 12$.", True),
    ("5", r"\boxed{$5$}", True),
    ("5", "<answer>\n**5**\n</answer>", True),
    ("5", "<answer>The answer is 5.</answer>", True),
    ("5", r"\boxed{\text{The answer is } 5}", True),
    ("18", r"\boxed{\$18.00}", True),
]
UNITS: list[Row] = [
    ("18", r"\boxed{18 dollars}", True),
    ("18", r"\boxed{18 people}", True),
    ("18", r"\boxed{18 hours}", True),
    ("18", r"\boxed{18^\circ}", True),
    ("18", r"\boxed{18 \text{ red marbles}}", True),
    ("18", "Answer: 18 square feet", True),
    ("18", "#### 18 eggs per day", True),
    # Of two units the answer's must be the gold's (policy).
    ("18 dollars", r"\boxed{18 people}", False),
    ("18 dollars", r"\boxed{\$18}", True),
    ("18 dollars", r"\boxed{18}", True),
    (r"5\text{ cm}", r"\boxed{5 centimeters}", True),
    (r"5\text{ cm}", r"\boxed{5\text{ m}}", False),
    (r"5\text{ cm}^2", r"\boxed{5\text{ square cm}}", True),
    (r"5\text{ cm}^2", r"\boxed{5\text{ cm}}", False),
    ("120_{5}", r"\boxed{120_{6}}", False),
    ("2", r"\boxed{2x}", False),
    ("2", r"\boxed{2 pi}", False),
    ("3", r"\boxed{3:2}", False),
    ("5", "Answer: 5 million", False),
    ("5000000", "Answer: 5 million dollars", True),
]
EARLIER_FORMULAS: list[Row] = [
    ("5", "\\[ \\frac{8}{2} = 4 \\]\nThe answer is 5.", True),
    ("4", "\\[ \\frac{8}{2} = 4 \\]\nThe answer is 5.", False),
    ("18", r"so 9 \times 2 = 18 dollars.", True),
    ("5", r"\( \sqrt{25} = 5 \). The answer is 5.", True),
    ("7", r"We have $\frac{a}{b}=2$. Answer: 7", True),
    ("12", r"Hence 3 \cdot 4 = 12 apples.", True),
    ("12", r"Therefore \frac{24}{2} = 12", True),
]
SENTENCES: list[Row] = [
    (r"\frac{1}{2}", "The probability is 1/2.", True),
    ("(1,2)", "The point is (1,2).", True),
    (r"\text{Evelyn}", "The answer is Evelyn.", True),
    (r"\text{Evelyn}", "The answer is Briana.", False),
    (r"\frac{3}{4}", "The fraction is 3/4 of the cake.", True),
    ("x^2+1", "The polynomial is x^2 + 1.", True),
    (r"\sqrt{2}", "The length is sqrt(2).", True),
    ("[0,1)", "The interval is [0, 1).", True),
    ("1,2", "The solutions are 1 and 2.", True),
    ("-5", "The answer is -5.", True),
    (r"2\pi", "The period is 2π.", True),
]
UNICODE: list[Row] = [
    (r"74^\circ", r"\boxed{74°}", True),
    ("74", r"\boxed{74°}", True),
    (r"45^\circ", "Answer: 45°", True),
    (r"\sqrt{2}", r"\boxed{√2}", True),
    ("x^2+1", r"\boxed{x²+1}", True),
    ("12", r"\boxed{3·4}", True),
    ("12", "\\boxed{3\u00d74}", True),
    (r"1\frac12", r"\boxed{1½}", True),
    (r"x\le 3", r"\boxed{x≤3}", True),
    ("x^{-1}", r"\boxed{x⁻¹}", True),
    ("a_1", r"\boxed{a₁}", True),
    (r"\sqrt{x+1}", r"\boxed{√(x+1)}", True),
    (r"\theta", r"\boxed{θ}", True),
    ("12", "\\boxed{\uff11\uff12}", True),
    ("x^2", r"\boxed{x³}", False),
]
INEQUALITIES: list[Row] = [
    ("[-2,7]", r"\boxed{-2 \le x \le 7}", True),
    (r"(2,\infty)", r"\boxed{x>2}", True),
    (r"(-\infty,1)\cup(3,\infty)", r"\boxed{x<1 \text{ or } x>3}", True),
    (r"x<1 \text{ or } x>3", r"\boxed{(-\infty,1)\cup(3,\infty)}", True),
    (r"x<1 \text{ or } x>3", r"\boxed{x>3}", False),
    (r"(-1,3]", r"\boxed{-1 < x \leq 3}", True),
    (r"(-\infty,5]", r"\boxed{x < 5}", False),
    (r"x \ge 2", r"\boxed{[2,\infty)}", True),
    (r"1<2x \le 3", r"\boxed{3 \ge 2x > 1}", True),
    (r"2x \le 4", r"\boxed{x \le 2}", True),
    (r"2x \le 4", r"\boxed{x \ge 2}", False),
    ("[1,2]", "The answer is 1 ≤ x ≤ 2.", True),
]
SEVERAL_BOXES: list[Row] = [
    ("-2,1", r"$x=\boxed{-2}$ and $x=\boxed{1}$", True),
    # Different answers side by side are a list, and so none where one is asked for (policy).
    ("2", r"\boxed{1}\boxed{2}", False),
    ("2", "<answer>1</answer> or <answer>2</answer>", False),
    ("2,3", r"\boxed{2}, \boxed{3}", True),
    ("3", r"$x = \boxed{2}$ or $x = \boxed{3}$", False),
    ("4", r"\boxed{4} \boxed{4}", True),
    ("15", r"I first found \boxed{12}. Checking again, it is \boxed{15}.", True),
    ("5", r"\boxed{x = 5 \text{ or } x = 3}", False),
    ("5, 3", r"\boxed{x = 5 \text{ or } x = 3}", True),
    ("1,1", r"\boxed{1}", False),
]
TURNED: list[Row] = [
    (r"x \equiv 2 \pmod{5}", r"\boxed{x \equiv 2 \pmod 5}", True),
    ("2=x", r"\boxed{2}", True),
    ("4", "The answer is 4 0/0.", False),
    (r"x \equiv 2 \pmod{5}", r"\boxed{x≡7 (mod 5)}", True),
    (r"x \equiv 2 \pmod{5}", r"\boxed{x \equiv 3 \pmod 5}", False),
    (r"x \equiv 2 \pmod{5}", r"\boxed{x \equiv 2 \pmod 7}", False),
    (r"3 \pmod{7}", r"\boxed{x \equiv 3 \pmod{7}}", True),
    ("x=3", r"\boxed{3=x}", True),
    ("x=3", r"\boxed{3=y}", False),
    ("5", "5 6", False),
    ("4", "The answer is 4 4/0.", False),
]
SPELLINGS: list[Row] = [
    ("pi/2", r"\boxed{\frac{\pi}{2}}", True),
    ("2*pi", r"\boxed{2\pi}", True),
    ("exp(16)-1", r"\boxed{e^{16}-1}", True),
    ("sqrt(2)/2", r"\boxed{\frac{\sqrt{2}}{2}}", True),
    ("3*x**2", r"\boxed{3x^2}", True),
    ("ln(2)", r"\boxed{\ln 2}", True),
    ("sin(pi/6)", r"\boxed{\frac12}", True),
    ("infinity", r"\boxed{\infty}", True),
    ("x^(1/2)", r"\boxed{\sqrt{x}}", True),
    (r"\cos(60^\circ)", r"\boxed{\frac12}", True),
    ("5 - 5c", r"\boxed{-5c+5}", True),
]
KINDS = {
    "u01_an_exponent_is_not_the_answer": EXPONENTS,
    "u02_values_that_are_close_or_small_are_not_equal": CLOSE,
    "u03_spacing_in_numbers_separates_thousands": SEPARATORS,
    "u04_a_box_is_read_alike_in_responses_and_golds": WRAPPERS,
    "u07_a_gold_is_won_by_another_spelling_too": SPELLINGS,
    "u38_words_behind_a_number_are_its_unit": UNITS,
    "u39_the_stated_answer_wins_over_an_earlier_formula": EARLIER_FORMULAS,
    "u40_an_answer_in_a_sentence_need_not_be_a_number": SENTENCES,
    "u41_unicode_is_read_as_latex": UNICODE,
    "u42_an_inequality_is_the_interval_that_it_describes": INEQUALITIES,
    "u43_several_boxes_are_one_answer": SEVERAL_BOXES,
    "u44_congruences_and_turned_equations": TURNED,
}


@pytest.mark.parametrize("kind", KINDS)
def test_found_in_use(kind: str, make_scorer: MakeScorer, answer: Answer):
    rows = KINDS[kind]
    scores = make_scorer(accuracy="math", timeout_seconds=30.0).score([answer(gold, text) for gold, text, _ in rows])
    wrong = [row for row, score in zip(rows, scores, strict=True) if (score.status == "right") != row[2]]
    assert wrong == [] and not {"error", "timeout", "unscorable"} & {score.status for score in scores}


@pytest.mark.parametrize("kind", KINDS)
def test_found_in_use_every_gold_wins_with_itself(kind: str, make_scorer: MakeScorer, answer: Answer):
    golds = [answer(gold, "", id=f"{index}").question for index, (gold, _, _) in enumerate(KINDS[kind])]
    assert set(gold_statuses(make_scorer(accuracy="math", timeout_seconds=30.0), golds)) == {"right"}


@pytest.mark.parametrize(
    ("gold", "text", "right"),
    [
        *EXPONENTS, *SEPARATORS, *WRAPPERS, *UNITS, *EARLIER_FORMULAS,
        ("18", r"\boxed{18 hours}", True), ("18", r"\boxed{18^\circ}", True), ("7", "3 + 4 = 7", True),
        ("5", "5 apples or 6 apples", False), ("5", "8-3", False), ("3", "version 1.2.3", False),
    ],
)  # fmt: skip
def test_found_in_use_numeric_reads_numbers_as_math_does(gold: str, text: str, right: bool, answer: Answer):
    assert checkers.numeric(Numeric(), answer(gold, text)) in (right, None)


@pytest.mark.parametrize(
    ("opened", "text", "right"),
    [
        ("<think>", r"Perhaps \boxed{42}? Hmm", False),
        ("<think>", r"Perhaps \boxed{41}? Hmm</think> \boxed{42}", True),
        ("", r"Perhaps \boxed{42}? Hmm", True),
        ("<reasoning>", r"Perhaps \boxed{42}", False),
        ("[THINK]", r"Perhaps \boxed{41} [/THINK] \boxed{42}", True),
        ("<thinking>", r"a</think> \boxed{42}", False),
        ("", r"<thinking> \boxed{42}", False),
        ("", r"<|begin_of_thought|> \boxed{41} <|end_of_thought|> \boxed{42}", True),
    ],
)
def test_u05_a_thought_that_the_prompt_opened_holds_no_answer(opened: str, text: str, right: bool, answer: Answer):
    assert checkers.numeric(Numeric(), answer("42", text, opened=opened)) is right


def test_u05_what_follows_an_opened_thought_keeps_the_format(make_scorer: MakeScorer, answer: Answer):
    texts = [("<think>", "so</think><answer>4</answer>"), ("", "so</think><answer>4</answer>"), ("<think>", "4")]
    scorer = make_scorer(accuracy="numeric", parts={"format": "format"})
    scores = scorer.score([answer("4", text, opened=opened) for opened, text in texts])
    assert [score.parts["format"] for score in scores] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "texts", [("Sa\u0303o Tome\u0301", "S\u00e3o Tom\u00e9"), ("e\u0301", "\u00e9"), ("\ufb01ve", "five")]
)
def test_u07_composed_and_decomposed_letters_are_the_same_text(texts: tuple[str, str], answer: Answer):
    assert checkers.exact(Exact(), answer(*texts)) and checkers.exact(Exact(), answer(*reversed(texts)))


@pytest.mark.parametrize(
    "text",
    [
        "Answer: B because it fits", "Answer: B - Paris", "Answer: B (Paris)", r"\boxed{\textbf{(B)}\ 12}",
        r"\boxed{\mathrm{B}}", "The answer is B because it fits", "Answer: B, since it fits",
        r"\boxed{\text{B. Paris}}",
        "I choose option (B).", "Answer: B/B", "so it's B", "The answer is for sure B, it can't be A or C",
        "\u7b54\u6848\uff1aB", "La respuesta es (B).",
    ],
)  # fmt: skip
def test_u45_a_letter_may_be_followed_by_its_reason(text: str, answer: Answer):
    assert checkers.choice(Choice(), answer("B", text))
    assert checkers.choice(Choice(), answer(r"\textbf{(B)}\ 12", text))
    assert checkers.choice(Choice(), answer("A", text)) is False


@pytest.mark.parametrize(
    "text", ["Answer: B/C", "Answer: B or C", "Answer: B, C", "A cat", "I think so", r"\boxed{A, B}"]
)
def test_u45_two_letters_and_words_are_none(text: str, answer: Answer):
    assert not any(checkers.choice(Choice(), answer(letter, text)) for letter in "ABCI")


def test_u43_the_reader_of_math_takes_all_boxes_of_one_answer():
    solution = r"By Vieta we get $x=\boxed{-2}$ and $x=\boxed{1}$."
    assert read_math({"problem": "Solve.", "solution": solution}).gold == "-2, 1"
    assert read_math({"problem": "Solve.", "solution": r"First \boxed{3}. Thus the sum is \fbox{5}."}).gold == "5"
