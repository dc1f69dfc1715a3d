import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.answers import boxed_answer, find_answer


def says(response: str, cut: bool = False) -> str | None:
    answer = find_answer(response, cut)
    return answer.expression if answer else None


@pytest.mark.parametrize(
    ("response", "expression"),
    [
        ("<think>7+5</think><answer>42</answer>", "42"),
        ("<answer>41</answer> no, <answer> 42 </answer>", "42"),
        (r"I first found \boxed{12}. Checking again, it is \boxed{15}.", "15"),
        (r"\boxed{41} <answer>42</answer>", "42"),
        (r"<answer>\boxed{42}</answer>", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"Cost is $x$. Thus \[ \boxed{42} \]", "42"),
        (r"\boxed{x = \boxed{5}}", "5"),
    ],
)
def test_the_last_enclosed_content_is_the_answer(response: str, expression: str):
    assert says(response) == expression


@pytest.mark.parametrize(
    "response",
    [
        "",
        r"\boxed{}",
        "#### ",
        "<answer></answer>",
        "<answer> </answer>",
        r"The answer is \boxed{42",
        r"\boxed{41} or \boxed{42",
        r"\boxed{\frac{1}{2}",
        "<answer>42",
        "<answer>41</answer><answer>42",
        r"\boxed{41} <answer>",
    ],
)
def test_empty_and_unclosed_ones_give_no_answer(response: str):
    assert says(response) is None


@pytest.mark.parametrize(
    ("response", "expression"),
    [
        (r"<think>maybe \boxed{42}", None),
        (r"<think>maybe \boxed{42}</think> So \boxed{41}", "41"),
        (r"<think>maybe \boxed{41}</think> So \boxed{42}", "42"),
        (r"maybe 41</think> \boxed{42}", "42"),
        (r"\boxed{42}", "42"),
        ("<think>42</think>", None),
        ("<think>41</think>42<think>43", None),
    ],
)
def test_thinking_gives_no_answer(response: str, expression: str | None):
    assert says(response) == expression


@pytest.mark.parametrize(
    ("response", "expression"),
    [
        ("It takes 3 steps.\n#### 15,000", "15,000"),
        ("#### 1\n#### 2", "2"),
        ("Six times seven. Answer: 42", "42"),
        ("Answer:\n42", "42"),
        ("The answer is: 42", "42"),
        ("The answer to this question is 42, since 6 * 7 = 42.", "42"),
        ("The answer is\n\\[\n 5 \n\\]", "5"),
        ("310 + 2*117 = 544\nConsistent!\nFinal Answer: **58**", "58"),
        ("**Final Answer:** 58\n", "58"),
        ("**Answer**: 58", "58"),
        ("Answer: Paris", "Paris"),
        ("42\nAnswer: unknown", "unknown"),
        ("The final answer is $5$. I hope it is correct.", "5"),
        ("The answer is not 5 but 6.", "6"),
        ("The answer is 5. I checked that this answer is right.", "5"),
    ],
)
def test_with_nothing_enclosed_a_label_leads_to_the_answer(response: str, expression: str):
    assert says(response) == expression


def test_what_stands_behind_the_end_of_the_turn_is_not_read():
    assert says("The answer is 19. <|im_end|>\n<|im_start|>user\nAnswer: 20") == "19"


@pytest.mark.parametrize("response", ["The answer is 4", "Answer: 4", "#### 4", "4"])
def test_a_cut_response_has_no_answer_unless_it_is_enclosed(response: str):
    assert says(response, cut=True) is None
    assert says(f"{response} <answer>42</answer> and", cut=True) == "42"


def test_many_unclosed_boxes_and_tags_take_no_time():
    assert says(r"\boxed{" * 20_000) is None
    assert says("<answer>" * 20_000) is None
    assert boxed_answer(r"\boxed{1} " * 20_000) == "1"


@given(st.text() | st.text(r"<>/answerthink\boxed{}#*: 12$.,", max_size=80), st.booleans())
def test_no_response_raises_or_gives_an_empty_answer(response: str, cut: bool):
    answer = find_answer(response, cut)
    assert answer is None or answer.text
