r"""From a row of a table to a question: one function for each layout.

The layouts are those of openai/gsm8k, EleutherAI/hendrycks_math and HuggingFaceH4/MATH-500 (`math`),
HuggingFaceH4/aime_2024, agentica-org/DeepScaleR-Preview-Dataset, BytedTsinghua-SIA/DAPO-Math-17k, cais/mmlu with its
kin (`multiple_choice`), google-research-datasets/mbpp and openai/openai_humaneval.
"""

import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tasks.reward.answers import boxed_answer

TableRow = Mapping[str, Any]
"""A row by the reader's names for its columns; what the row has not is None."""


_LETTERS = string.ascii_uppercase


class Refused(Exception):
    """A row that can't become a question: it is left out and counted under this reason."""


class WrongType(Exception):
    """A value of a kind that the column can't have: the table has another layout than the recipe says."""

    def __init__(self, column: str, value: object, expected: str) -> None:
        super().__init__(column, value, expected)
        self.column, self.value, self.expected = column, value, expected


@dataclass(frozen=True)
class Parsed:
    """What a row says: the question's text, or a conversation that ends with it, and the gold answer."""

    prompt: str | list[dict[str, str]]
    gold: str
    metadata: Mapping[str, Any] | None = None


Reader = Callable[[TableRow], Parsed]


def plain(row: TableRow) -> Parsed:
    """A question, or its list of messages, and the gold answer as it stands."""
    return Parsed(_prompt(row, "question"), _text(row, "answer", "no answer"))


def gsm8k(row: TableRow) -> Parsed:
    """The gold is what follows the last `####` of the worked answer, without thousands separators."""
    _, mark, gold = _text(row, "answer", "no answer").rpartition("####")
    if not mark or not gold.strip():
        raise Refused("no answer after ####")
    return Parsed(_prompt(row, "question"), gold.strip().replace(",", ""))


def math(row: TableRow) -> Parsed:
    r"""The gold is the content of the last `\boxed{…}` (or `\fbox{…}`, or `\boxed 7`) of the solution.

    Boxes side by side, `$x=\boxed{-2}$ and $x=\boxed{1}$`, are one gold: `-2, 1`.
    """
    gold = boxed_answer(_text(row, "solution", "no answer"))
    if not gold:
        raise Refused("no boxed answer")
    return Parsed(_prompt(row, "problem"), gold)


def problem_answer(row: TableRow) -> Parsed:
    """A problem and its bare answer; AIME's `073` stays as it is."""
    return Parsed(_prompt(row, "problem"), _text(row, "answer", "no answer"))


def dapo(row: TableRow) -> Parsed:
    """A list of messages, and the gold in `reward_model.ground_truth`."""
    rule = _need(row, "reward_model", Mapping, "an object with ground_truth")
    return Parsed(_prompt(row, "prompt"), _text(rule, "ground_truth", "no answer"))


def multiple_choice(row: TableRow) -> Parsed:
    """The choices are shown as `A. …`, `B. …`; the gold is a letter.

    Choices are a list of texts (MMLU), or an object with `text` and `label` lists (ARC). The answer is the position of
    the right one from 0, its letter, or its label.
    """
    choices, labels = _need(row, "choices", (list, Mapping), "a list of texts"), list(_LETTERS)
    if isinstance(choices, Mapping):
        choices, labels = choices["text"], list(map(str, choices["label"]))
    if not 2 <= len(choices) <= len(_LETTERS):
        raise Refused("fewer than 2 or more than 26 choices")
    answer, known = _need(row, "answer", (int, str), "a letter or a position"), labels[: len(choices)]
    place = answer if isinstance(answer, int) else known.index(answer) if answer in known else -1
    if not 0 <= place < len(choices):
        raise Refused("the answer is none of the choices")
    shown = "\n".join(f"{letter}. {choice}" for letter, choice in zip(_LETTERS, choices, strict=False))
    return Parsed(f"{_text(row, 'question', 'no question')}\n\n{shown}", _LETTERS[place])


def mbpp(row: TableRow) -> Parsed:
    """The task with the tests that the code must pass, as MBPP is asked; the gold is the reference solution."""
    tests = _need(row, "test_list", list, "a list of tests")
    task = _text(row, "text", "no question")
    prompt = f"{task}\nYour code should pass these tests:\n\n" + "\n".join(map(str, tests))
    return Parsed(prompt, _text(row, "code", "no answer"), {"tests": tests})


def humaneval(row: TableRow) -> Parsed:
    """The head of a function to complete; the gold is the reference body, the metadata how it is tested."""
    # Code is kept with the indentation that it begins with.
    prompt, body = _need(row, "prompt", str, "code"), _need(row, "canonical_solution", str, "code")
    return Parsed(prompt, body, {"test": row["test"], "entry_point": row["entry_point"]})


def to_earlier_and_text(prompt: str | list[dict[str, str]]) -> tuple[str, str]:
    """Split a prompt: (JSON of the messages before the last one, text of the last one, which is the user's)."""
    if isinstance(prompt, str):
        return "[]", prompt
    *earlier, last = prompt
    return json.dumps(earlier), last["content"].strip()


def _prompt(row: TableRow, column: str) -> str | list[dict[str, str]]:
    value = row[column]
    if not isinstance(value, list):
        return _text(row, column, "no question")
    if not value or not all(_is_message(message) for message in value):
        raise WrongType(column, value, "text, a number, or messages that each have a role and a content of text")
    if value[-1]["role"] != "user":
        raise Refused("the last message is not the user's")
    if not value[-1]["content"].strip():
        raise Refused("no question")
    return [{"role": message["role"], "content": _unicode(message["content"])} for message in value]


def _need(row: TableRow, column: str, kind: type | tuple[type, ...], expected: str) -> Any:
    """Return a value that is there and of the right type."""
    value = row[column]
    if value is None or value == "":
        raise Refused(f"no {column}")
    if not isinstance(value, kind):
        raise WrongType(column, value, expected)
    return value


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _text(row: TableRow, column: str, missing: str) -> str:
    """Return a value as text, each number in one way; a row without the value is refused as `missing`."""
    value = row.get(column)
    match value:
        case str():
            text = value.strip()
        case bool() | int():
            text = str(value)
        case float() if value == value:
            text = format(Decimal(repr(value)), "f")
        case None | float():
            text = ""  # NaN is how tables spell "nothing".
        case Decimal():
            text = format(value, "f")
        case _:
            raise WrongType(column, value, "text or a number")
    if not text:
        raise Refused(missing)
    return _unicode(text)


def _unicode(text: str) -> str:
    """Refuse half of a surrogate pair, which JSON may hold and no file, tokenizer or Arrow table takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("text that is not valid Unicode") from None
    return text


READERS: dict[str, Reader] = {
    "plain": plain,
    "gsm8k": gsm8k,
    "math": math,
    "aime": problem_answer,
    "deepscaler": problem_answer,
    "dapo": dapo,
    "multiple_choice": multiple_choice,
    "mbpp": mbpp,
    "humaneval": humaneval,
}
"""By the recipe's name of the layout; `configs.data.READER_COLUMNS` has the columns that each needs."""
