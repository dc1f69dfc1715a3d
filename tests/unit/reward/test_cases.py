r"""Inputs that are known to break scorers, with their right values.

Where there was a choice of policy, it is written down in the docstrings of `tasks/reward/answers.py` (which answer
counts), `equality.py` (`math`) and `checkers.py` (the other kinds); the tests here name it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from configs.reward import Reward
from tasks.reward.scorer import Scorer, gold_statuses
from tests.unit.reward.conftest import Answer, MakeScorer

Grade = Callable[..., float | None]
T = TypeVar("T")

BARE_GOLDS = [
    r"\sqrt{2}", r"\frac12", "x^2+1", "(1,2)", "[0,1)", r"\infty", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
    r"\text{(C)}", "A", "yes", "no", r"2\pi",
    r"6.2\%", "10:30", "3:2", "1,2", "-3", "1,234", "x=5", r"90^\circ", r"\frac{1}{2}",
]  # fmt: skip
LONG_GOLD = "+".join(f"{k}x^{{{k}}}" for k in range(1, 31))


@pytest.fixture
def grade(make_scorer: MakeScorer, answer: Answer) -> Grade:
    """The reward of a response under `math`."""

    def score(gold: str, response: str, finish_reason: str = "stop") -> float | None:
        return make_scorer(accuracy="math").score([answer(gold, response, finish_reason=finish_reason)])[0].reward

    return score


@pytest.mark.parametrize("kind", ["math", "numeric"])
@pytest.mark.parametrize(
    ("gold", "response", "expected"),
    [
        # A comma after the last number is no answer.
        ("64", "She sold 64 boxes, overall.", 1.0),
        ("64", "It came to 64, all told, which covers the rent.", 1.0),
        ("64", "#### ,", 0.0),
        # Thousands separators don't cut the number.
        ("7250", r"\boxed{7{,}250}", 1.0),
        ("7250", r"\boxed{\$7{,}250}", 1.0),
        ("6000", r"\boxed{6,000}", 1.0),
        ("15000", "#### 15,000", 1.0),
        ("1234567", "1,234,567", 1.0),
        ("250", r"\boxed{7{,}250}", 0.0),
        ("0", r"\boxed{6,000}", 0.0),
        ("1", "1,234,567", 0.0),
        # Equal numbers in other forms; leading zeros don't count (policy).
        *[("72", form, 1.0) for form in ("72.0", "72.00", "72.", "+72", "072")],
        *[("72", rf"\boxed{{{form}}}", 1.0) for form in ("72.0", "72.00", "72.", "+72", "072")],
        ("72", "72.01", 0.0),
        ("72", r"\boxed{72.01}", 0.0),
        ("0", "-0", 1.0),
        # U+2212 is a minus sign, and so is an en dash (policy).
        *[("-3", form, 1.0) for form in ("The answer is \u22123", "\\boxed{\u22123}", "\\boxed{\u20133}")],
        *[("3", form, 0.0) for form in ("The answer is \u22123", "\\boxed{\u22123}", "\\boxed{\u20133}")],
        # The last box is the answer (policy).
        ("15", r"I first found \boxed{12}. Checking again, it is \boxed{15}.", 1.0),
        ("12", r"I first found \boxed{12}. Checking again, it is \boxed{15}.", 0.0),
        # Several answers are none.
        ("1", r"\boxed{1} \boxed{2} \boxed{3}", 0.0),
        ("3", r"\boxed{1} \boxed{2} \boxed{3}", 0.0),  # side by side they are a list (policy)
        *[(gold, r"\boxed{1 or 2 or 3}", 0.0) for gold in "123"],
        *[(gold, r"\boxed{1, 2, 3}", 0.0) for gold in "123"],
        *[(gold, "It is 1 or 2 or 3", 0.0) for gold in "123"],
        # Nothing, and parts of a number, are no answer.
        *[("42", response, 0.0) for response in ("", r"\boxed{}", "#### ", "<answer></answer>")],
        ("1", r"\boxed{21}", 0.0),
        ("1", "14", 0.0),
        # The answer stands outside of the thinking; tags aren't compulsory (policy).
        ("42", r"<think>maybe \boxed{42}", 0.0),
        ("42", r"<think>maybe \boxed{42}</think> So \boxed{41}", 0.0),
        ("42", r"<think>maybe \boxed{41}</think> So \boxed{42}", 1.0),
        ("42", r"maybe 41</think> \boxed{42}", 1.0),
        ("42", r"\boxed{42}", 1.0),
        # Bold text around the number, display mathematics around the box.
        ("58", "310 + 2*117 = 544\nConsistent!\nFinal Answer: **58**", 1.0),
        ("117", "310 + 2*117 = 544\nConsistent!\nFinal Answer: **58**", 0.0),
        ("42", r"Cost is $x$. Thus \[ \boxed{42} \]", 1.0),
        # Free text is enough.
        ("42", "Six times seven. Answer: 42", 1.0),
        # Golds that were numbers before they became text.
        ("42", r"\boxed{42}", 1.0),
        ("42.0", r"\boxed{42}", 1.0),
    ],
)
def test_the_one_answer_is_compared_with_the_gold(
    kind: str, gold: str, response: str, expected: float, make_scorer: MakeScorer, answer: Answer
):
    assert make_scorer(accuracy=kind).score([answer(gold, response)])[0].reward == expected


def test_a_long_answer_is_compared_whole(grade: Grade):
    assert len(LONG_GOLD) > 159
    assert grade(LONG_GOLD, rf"\boxed{{{LONG_GOLD}}}") == 1.0
    assert grade(LONG_GOLD, rf"\boxed{{{LONG_GOLD.replace('30x', '31x')}}}") == 0.0
    backwards = "+".join(reversed(LONG_GOLD.split("+")))
    assert grade(LONG_GOLD, rf"\boxed{{{backwards}}}") == 1.0


@pytest.mark.parametrize(
    ("gold", "response", "expected"),
    [
        (r"$35\%$", r"\boxed{35}", 1.0),
        (r"$35\%$", r"\boxed{0.35}", 1.0),
        (r"$35\%$", r"\boxed{35 percent}", 1.0),
        ("35", r"\boxed{0.35}", 0.0),
        ("35", r"\boxed{35\%}", 1.0),
    ],
)
def test_a_percent_sign_may_be_a_unit_or_a_hundredth_but_a_plain_number_is_itself(
    gold: str, response: str, expected: float, grade: Grade
):
    assert grade(gold, response) == expected


def test_for_numeric_a_percent_sign_is_a_unit(make_scorer: MakeScorer, answer: Answer):
    responses = [answer("35%", f"Answer: {text}") for text in ("35", "35 percent", "0.35")]
    assert [score.reward for score in make_scorer(accuracy="numeric").score(responses)] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("gold", BARE_GOLDS)
def test_a_gold_given_as_the_answer_is_right(gold: str, grade: Grade, make_scorer: MakeScorer, answer: Answer):
    assert grade(gold, rf"The final answer is \boxed{{{gold}}}") == 1.0
    assert grade(f"${gold}$", rf"The final answer is \boxed{{{gold}}}") == 1.0
    assert gold_statuses(make_scorer(accuracy="math"), [answer(gold, "").question]) == ["right"]


@pytest.mark.parametrize(
    ("gold", "other"), [(r"2\pi", "2"), ("1,2", "1.2"), ("10:30", "10"), ("3:2", "3"), ("no", "yes")]
)
def test_a_bare_gold_is_read_whole(gold: str, other: str, grade: Grade):
    assert grade(gold, rf"\boxed{{{other}}}") == 0.0


def test_golds_that_cant_be_won_are_found_in_preparation(make_scorer: MakeScorer, answer: Answer):
    golds = [answer(gold, "", id=gold).question for gold in ("72", "seventy-two", "")]
    assert gold_statuses(make_scorer(accuracy="numeric"), golds) == ["right", "unscorable", "unscorable"]
    assert gold_statuses(make_scorer(accuracy="math"), golds) == ["right", "right", "unscorable"]


def test_a_box_cut_by_the_length_limit_is_truncated_not_wrong(make_scorer: MakeScorer, answer: Answer):
    [score] = make_scorer(accuracy="math").score([answer("42", r"The answer is \boxed{42", finish_reason="length")])
    assert (score.reward, score.status) == (0.0, "truncated")


@pytest.mark.parametrize("kind", ["math", "numeric", "exact"])
def test_a_question_without_gold_is_left_out_of_the_mean(kind: str, make_scorer: MakeScorer, answer: Answer):
    scores = make_scorer(accuracy=kind).score([answer("", "anything"), answer("", ""), answer("42", r"\boxed{41}")])
    assert [score.status for score in scores] == ["unscorable", "unscorable", "wrong"]
    assert [score.reward for score in scores] == [None, None, 0.0]


def test_an_interval_solves_an_inequality(grade: Grade):
    # The other way round, with the arguments of math-verify's `verify` swapped, it would not.
    assert grade("$1 < x < 4.5$", r"\boxed{(1, 4.5)}") == 1.0


def test_the_prompt_is_never_scored_with_the_response(make_scorer: MakeScorer, answer: Answer):
    scorer = make_scorer(accuracy="math", parts={"format": "format"})
    boxed = answer("5", "I think 6", id="Put the final answer in <think></think><answer>5</answer>.")
    few_shot = answer("8", "", id="How many? #### 8")
    assert [score.parts for score in scorer.score([boxed, few_shot])] == [{"accuracy": 0.0, "format": 0.0}] * 2


def in_a_thread(score: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(score()))
    thread.start()
    thread.join()
    return results[0]


def in_an_executor(score: Callable[[], T]) -> T:
    with ThreadPoolExecutor() as executor:
        return executor.submit(score).result()


def in_asyncio(score: Callable[[], T]) -> T:
    return asyncio.run(asyncio.to_thread(score))


@pytest.mark.parametrize("run", [in_a_thread, in_an_executor, in_asyncio])
def test_a_symbolic_answer_is_scored_outside_of_the_main_thread(
    run: Callable[[Callable[[], float | None]], float | None], grade: Grade, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        assert run(lambda: grade(r"\frac{1}{3}", r"\boxed{\frac{2}{6}}")) == 1.0
    assert not caplog.records


def test_expressions_that_never_end_cost_their_own_sample_the_limit_and_nobody_else_anything(
    answer: Answer, caplog: pytest.LogCaptureFixture
):
    endless = [r"\boxed{9^{9^{9^9}}}", r"\boxed{10^{10^{10}}}", r"\boxed{1000000!}"]
    batch = [answer("42", text, id=f"q{i}") for i, text in enumerate([*endless, r"\boxed{42}", r"\boxed{6 \cdot 7}"])]
    with Scorer(Reward.model_validate({"accuracy": "math", "timeout_seconds": 1.5})) as scorer:
        scores = in_a_thread(lambda: scorer.score(batch))
    assert [score.status for score in scores] == ["timeout"] * 3 + ["right"] * 2
    assert [score.reward for score in scores] == [0.0] * 3 + [1.0] * 2
    assert [f"question q{i}" in caplog.text for i in range(5)] == [True] * 3 + [False] * 2
    assert "9^" not in caplog.text and len(caplog.text) < 1000
