import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.reward import Reward
from tasks.dataset.question import Question
from tasks.reward import checkers
from tasks.reward.score import Score, keeps_format, score

WITH_FORMAT = Reward(answer_weight=1.0, format_weight=0.5)


def ask(gold: str, text: str = "", id: str = "q") -> Question:
    return Question(id=id, text=text, gold=gold, source="test")


def reward_of(response: str, gold: str, finish_reason: str = "stop") -> float | None:
    return score(response, ask(gold), Reward(), finish_reason).reward


@pytest.mark.parametrize(
    ("gold", "response", "expected"),
    [
        ("64", "She sold 64 boxes, overall.", 1.0),
        ("64", "#### ,", 0.0),
        ("7250", r"\boxed{7{,}250}", 1.0),
        ("7250", r"\boxed{\$7{,}250}", 1.0),
        ("15000", "#### 15,000", 1.0),
        ("250", r"\boxed{7{,}250}", 0.0),
        ("-3", "The answer is \u22123", 1.0),
        ("-3", "\\boxed{\u22123}", 1.0),
        ("3", "The answer is \u22123", 0.0),
        ("3", "\\boxed{\u22123}", 0.0),
        ("15", r"I first found \boxed{12}. Checking again, it is \boxed{15}.", 1.0),
        ("12", r"I first found \boxed{12}. Checking again, it is \boxed{15}.", 0.0),
        ("58", "310 + 2*117 = 544\nConsistent!\nFinal Answer: **58**", 1.0),
        ("117", "310 + 2*117 = 544\nConsistent!\nFinal Answer: **58**", 0.0),
        ("42", r"Cost is $x$. Thus \[ \boxed{42} \]", 1.0),
        ("42", "Six times seven. Answer: 42", 1.0),
        ("132", "<think></think><answer>132</answer>", 1.0),
        ("132", "<think>132</think><answer>131</answer>", 0.0),
    ],
)
def test_the_one_answer_is_compared_with_the_gold(gold: str, response: str, expected: float):
    assert reward_of(response, gold) == expected


@pytest.mark.parametrize(
    "response", [r"\boxed{1} \boxed{2} \boxed{3}", r"\boxed{1 or 2 or 3}", r"\boxed{1, 2, 3}", "It is 1 or 2 or 3"]
)
@pytest.mark.parametrize("gold", ["1", "2", "3"])
def test_spraying_answers_earns_nothing(response: str, gold: str):
    # By the last-box rule the first one answers 3.
    answers_three = response == r"\boxed{1} \boxed{2} \boxed{3}" and gold == "3"
    assert reward_of(response, gold) == (1.0 if answers_three else 0.0)


@pytest.mark.parametrize(
    ("gold", "response"),
    [("42", ""), ("42", r"\boxed{}"), ("42", "#### "), ("42", "<answer></answer>"), ("1", r"\boxed{21}"), ("1", "14")],
)
def test_empty_answers_and_parts_of_numbers_earn_nothing(gold: str, response: str):
    assert score(response, ask(gold), Reward(), "stop") == Score(0.0, {"answer": 0.0, "format": 0.0}, "wrong")


def test_a_response_cut_before_its_answer_is_truncated_not_wrong():
    cut = score(r"The answer is \boxed{42", ask("42"), Reward(), "length")
    assert (cut.reward, cut.status) == (0.0, "truncated")
    # The number may go on: 42 of 420.
    assert score("The answer is 42", ask("42"), Reward(), "length").status == "truncated"


def test_a_response_cut_after_its_right_answer_is_right():
    assert score(r"\boxed{42} because", ask("42"), Reward(), "length").status == "right"


def test_a_question_without_gold_is_left_out_of_the_mean():
    rows = [("", "anything"), ("", ""), ("42", r"\boxed{41}")]
    scores = [score(response, ask(gold), WITH_FORMAT, "stop") for gold, response in rows]
    assert [s.status for s in scores] == ["unscorable", "unscorable", "wrong"]
    assert [s.reward for s in scores] == [None, None, 0.0]
    assert scores[0].parts == {}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"<think>maybe \boxed{42}", 0.0),
        (r"<think>maybe \boxed{42}</think> So \boxed{41}", 0.0),
        (r"<think>maybe \boxed{41}</think> So \boxed{42}", 1.0),
        (r"maybe 41</think> \boxed{42}", 1.0),
        (r"\boxed{42}", 1.0),
    ],
)
def test_an_answer_within_the_thinking_earns_nothing(response: str, expected: float):
    assert reward_of(response, "42") == expected


def test_the_prompt_is_never_scored_with_the_response():
    boxed = ask("5", text="Put the final answer in <think></think><answer>5</answer>.")
    assert score("I think 6", boxed, WITH_FORMAT, "stop").parts == {"answer": 0.0, "format": 0.0}
    few_shot = ask("8", text="How many? #### 8")
    assert score("", few_shot, Reward(), "stop").reward == 0.0


def test_a_failing_checker_harms_its_own_sample_only(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    def fails_on_the_second(answers: Sequence[str], question: Question) -> bool:
        if question.id == "q1":
            raise RuntimeError("boom")
        return checkers.exact(answers, question) or False

    monkeypatch.setitem(checkers.CHECKERS, "exact", fails_on_the_second)
    with caplog.at_level(logging.ERROR):
        scores = [score("a", ask(gold, id=f"q{i}"), Reward(checker="exact"), "stop") for i, gold in enumerate("aaab")]
    assert [s.reward for s in scores] == [1.0, None, 1.0, 0.0]
    assert scores[1] == Score(None, {}, "error")
    assert "question q1" in caplog.text and "boom" in caplog.text


@pytest.mark.parametrize(
    ("response", "parts", "reward"),
    [
        ("<think>4+3</think><answer>7</answer>", {"answer": 1.0, "format": 1.0}, 1.5),
        ("<think>4+3</think><answer>8</answer>", {"answer": 0.0, "format": 1.0}, 0.5),
        ("7", {"answer": 1.0, "format": 0.0}, 1.0),
        ("8", {"answer": 0.0, "format": 0.0}, 0.0),
    ],
)
def test_the_reward_is_the_weighted_sum_of_its_parts(response: str, parts: dict[str, float], reward: float):
    assert score(response, ask("7"), WITH_FORMAT, "stop") == Score(
        reward, parts, "right" if parts["answer"] else "wrong"
    )


@pytest.mark.parametrize(
    "response",
    [
        "<think></think><answer>7</answer>",
        " <think>a\nb</think>\n<answer>7</answer>\n",
        "<think>a<b</think><answer>a b</answer>",
    ],
)
def test_the_form_is_one_thinking_part_and_one_answer(response: str):
    assert keeps_format(response)


@pytest.mark.parametrize(
    "response",
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
def test_anything_else_breaks_the_form(response: str):
    assert not keeps_format(response)


@pytest.mark.parametrize(
    "response",
    [
        "<think></think><answer>" + "a" * 200_000,
        "<answer>" * 50_000,
        r"\boxed{" * 50_000,
        "1,234" + ",234" * 50_000 + "e5",
        "1" + " " * 200_000 + "\n2 and",
        "9" * 200_000,
        "**a" * 50_000,
        "answer " * 50_000,
        "answer" + "\n" * 200_000,
        "<think>" * 50_000,
        "$" * 200_000,
    ],
    ids=lambda response: response[:20],
)
def test_long_hostile_responses_are_wrong_and_take_no_longer_than_others(response: str):
    # Slow ones would run into the suite's time limit.
    assert score(response, ask("42"), WITH_FORMAT, "stop").status == "wrong"


@given(st.text() | st.text(r"<>/answerthink\boxed{}#*: 12", max_size=80), st.sampled_from(["exact", "numeric"]))
def test_no_response_raises_or_leaves_the_range(response: str, checker: str):
    result = score(response, ask("42"), Reward.model_validate({"checker": checker, "format_weight": 0.5}), "stop")
    assert result.reward in (0.0, 0.5, 1.0, 1.5)
    assert result.status in ("right", "wrong")
