import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.answers import find_answers, is_prose


@pytest.mark.parametrize(
    ("response", "answers"),
    [
        ("<think>7+5</think><answer>42</answer>", ["42"]),
        ("<answer>41</answer> no, <answer> 42 </answer>", ["42"]),
        (r"I first found \boxed{12}. Checking again, it is \boxed{15}.", ["15"]),
        (r"\boxed{41} <answer>42</answer>", ["42"]),
        (r"<answer>\boxed{42}</answer>", ["42"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"Cost is $x$. Thus \[ \boxed{42} \]", ["42"]),
    ],
)
def test_the_last_enclosed_content_is_the_answer(response: str, answers: list[str]):
    assert find_answers(response) == answers


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
    assert find_answers(response) == []


@pytest.mark.parametrize(
    ("response", "answers"),
    [
        (r"<think>maybe \boxed{42}", []),
        (r"<think>maybe \boxed{42}</think> So \boxed{41}", ["41"]),
        (r"<think>maybe \boxed{41}</think> So \boxed{42}", ["42"]),
        (r"maybe 41</think> \boxed{42}", ["42"]),
        (r"\boxed{42}", ["42"]),
        ("<think>42</think>", []),
        ("<think>41</think>42<think>43", []),
    ],
)
def test_thinking_gives_no_answer(response: str, answers: list[str]):
    assert find_answers(response) == answers


@pytest.mark.parametrize(
    ("response", "reading"),
    [
        ("It takes 3 steps.\n#### 15,000", "15,000"),
        ("#### 1\n#### 2", "2"),
        ("Six times seven. Answer: 42", "42"),
        ("Answer:\n42", "42"),
        ("The answer is: 42", "42"),
        ("310 + 2*117 = 544\nConsistent!\nFinal Answer: **58**", "58"),
        ("**Final Answer:** 58\n", "58"),
        ("**Answer**: 58", "58"),
        ("Answer: Paris", "Paris"),
        ("Paris", "Paris"),
    ],
)
def test_with_nothing_enclosed_a_label_leads_to_the_answer(response: str, reading: str):
    assert find_answers(response)[0] == reading


def test_with_nothing_marked_the_whole_text_or_its_last_number_is_the_answer():
    assert find_answers("3 + 4 = 7") == ["3 + 4 = 7", "7"]


def test_a_label_hides_the_numbers_elsewhere():
    assert find_answers("42\nAnswer: unknown") == ["unknown"]


def test_powers_are_not_taken_for_bold():
    assert find_answers("2**3 + 3**2")[0] == "2**3 + 3**2"


@pytest.mark.parametrize("response", ["The answer is 4", "Answer: 4", "#### 4", "4"])
def test_a_cut_response_has_no_answer_unless_it_is_enclosed(response: str):
    assert find_answers(response, cut=True) == []
    assert find_answers(f"{response} <answer>42</answer> and", cut=True) == ["42"]


@given(st.text() | st.text(r"<>/answerthink\boxed{}#*: 12", max_size=80), st.booleans())
def test_no_response_raises_or_gives_an_empty_answer(response: str, cut: bool):
    assert all(find_answers(response, cut)) and len(find_answers(response, cut)) <= 2


@pytest.mark.parametrize(
    ("response", "readings"),
    [
        (r"So the answer is $\frac{1}{2}$.", [r"\frac{1}{2}"]),
        (r"It is \(x\), then \[ \sqrt{2} \]", [r"\sqrt{2}"]),
        ("The point is $(1, 2)$ as we saw", ["(1, 2)"]),
        ("Thus $x = 5$", ["x = 5", "5"]),
        (r"Thus $5\text{ cm}$", [r"5\text{ cm}", "5"]),
        (r"\frac{1}{2} it is", [r"\frac{1}{2} it is"]),
        ("It costs $5 and later $6", ["It costs $5 and later $6", "6"]),
        ("It costs $7.50.", ["It costs $7.50.", "7.50"]),
    ],
)
def test_of_mathematics_in_a_text_the_last_is_the_answer_and_no_number_is_taken_out_of_latex(
    response: str, readings: list[str]
):
    assert find_answers(response) == readings


@pytest.mark.parametrize("text", ["She has 5 apples", "3 or 4", "seven, eight"])
def test_a_sentence_is_prose(text: str):
    assert is_prose(text)


@pytest.mark.parametrize("text", ["x + y", r"\frac{a}{b}", r"5\text{ square metres}", "42 apples", "sin x", r"x \or y"])
def test_an_expression_is_not_prose(text: str):
    assert not is_prose(text)
