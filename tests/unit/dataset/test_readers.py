"""Each layout as its data set has it; the sample files are our own."""

from pathlib import Path
from typing import Any

import pytest

from configs.data import READER_COLUMNS, Source
from tasks.dataset.readers import READERS, Refused, WrongType
from tasks.dataset.table import read_questions
from tasks.records.question import Question
from tasks.reward.answers import boxed_answer

SAMPLES = Path(__file__).parents[2] / "data"


def sample(name: str, reader: str) -> list[Question]:
    return read_questions(Source.model_validate({"source": str(SAMPLES / name), "reader": reader}), seed=0)[0]


def test_every_reader_of_the_recipe_is_there_and_no_other():
    assert READERS.keys() == READER_COLUMNS.keys()


def test_gsm8k_takes_what_follows_the_last_mark_without_thousands_separators():
    golds = [question.gold for question in sample("gsm8k-train.jsonl", "gsm8k")]
    # Line 5 has no `####`; line 8 has words after it, which only the check of golds can refuse.
    assert golds == ["12", "1500", "45", "1500", "36", "85", "about thirty-six"]


def test_math_takes_the_last_box():
    train, test = sample("math-train.jsonl", "math"), sample("math-test.jsonl", "math")
    assert [question.gold for question in train] == [r"\frac{1}{2}", "7", "(-2, 2)"]
    assert [question.gold for question in test] == ["81"]
    assert train[1].text == "Solve $2x - 6 = 8$ for $x$."


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        (r"first \boxed{1}, no: \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\fbox{3}", "3"),
        (r"so $x=\boxed 7$ holds", "7"),
        (r"\boxed{never closed", None),
        ("no box", None),
        (r"an empty \boxed", None),
    ],
)
def test_the_last_box_is_found_with_its_braces(solution: str, gold: str | None):
    assert boxed_answer(solution) == gold


def test_dapo_has_messages_and_a_ground_truth():
    [question] = sample("dapo.jsonl", "dapo")
    assert question.gold == "8"
    assert question.messages == [{"role": "user", "content": question.text}]
    assert question.text.startswith("Solve the following") and "How many primes are below 20?" in question.text


def test_aime_and_deepscaler_have_bare_answers_kept_as_they_are():
    assert [question.gold for question in sample("aime.jsonl", "aime")] == ["073"]
    # The second row has an empty answer, as some of the set have.
    assert [question.gold for question in sample("deepscaler.json", "deepscaler")] == [r"2\sqrt{3}"]


def test_choices_are_lettered_and_the_gold_is_a_letter():
    planet, gas = sample("mmlu.jsonl", "multiple_choice")
    assert planet.text == "Which planet is nearest to the sun?\n\nA. Venus\nB. Mars\nC. Mercury\nD. Earth"
    assert (planet.gold, gas.gold) == ("C", "B")


@pytest.mark.parametrize(
    ("choices", "answer", "gold"),
    [
        (["x", "y"], 0, "A"),
        (["x", "y"], "B", "B"),
        ({"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "3", "C"),
        ({"text": ["x", "y"], "label": ["A", "B"]}, "A", "A"),
    ],
)
def test_the_right_choice_is_a_position_a_letter_or_a_label(choices: Any, answer: Any, gold: str):
    assert READERS["multiple_choice"]({"question": "q", "choices": choices, "answer": answer}).gold == gold


@pytest.mark.parametrize("answer", [2, -1, "C", "z", None, ""])
def test_an_answer_that_is_no_choice_is_refused(answer: Any):
    with pytest.raises(Refused):
        READERS["multiple_choice"]({"question": "q", "choices": ["x", "y"], "answer": answer})


def test_code_sets_ask_with_their_tests_and_keep_them_for_the_reward():
    [mbpp], [humaneval] = sample("mbpp.jsonl", "mbpp"), sample("humaneval.jsonl", "humaneval")
    assert mbpp.text.endswith("pass these tests:\n\nassert larger(1, 2) == 2\nassert larger(5, 3) == 5")
    assert mbpp.metadata == '{"tests": ["assert larger(1, 2) == 2", "assert larger(5, 3) == 5"]}'
    assert humaneval.text.startswith("def double") and humaneval.gold == "    return 2 * x\n"
    assert '"entry_point": "double"' in humaneval.metadata


def test_a_conversation_ends_with_the_question():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": " 2+2? "},
    ]
    parsed = READERS["plain"]({"question": messages, "answer": 4})
    assert (parsed.prompt, parsed.gold) == (messages, "4")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        [{"role": "user", "content": " "}],
    ],
)
def test_a_conversation_without_a_question_is_refused(messages: list[dict[str, str]]):
    with pytest.raises(Refused):
        READERS["plain"]({"question": messages, "answer": "4"})


@pytest.mark.parametrize(
    "messages", [[], [{"role": "user"}], [{"role": "user", "content": [{"type": "image"}]}], ["hi"]]
)
def test_what_is_no_list_of_messages_is_a_wrong_type(messages: list):
    with pytest.raises(WrongType):
        READERS["plain"]({"question": messages, "answer": "4"})


def test_other_columns_are_mapped_to_the_readers(tmp_path: Path):
    path = tmp_path / "pro.jsonl"
    path.write_text('{"question": "q", "options": ["x", "y"], "answer_index": 1}')
    source = Source.model_validate(
        {"source": str(path), "reader": "multiple_choice", "columns": {"choices": "options", "answer": "answer_index"}}
    )
    assert [question.gold for question in read_questions(source, seed=0)[0]] == ["B"]
