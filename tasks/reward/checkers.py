"""Kinds of accuracy: whether a response is right.

Each function takes the part's settings and a sample. It returns whether the response is right, or None where the
question itself can't be checked, whatever the response. `answers.find_answers` says what counts as the answer.
"""

import importlib
import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

from configs.reward import Choice, Exact, Json, Math, Numeric, Python, ReasoningGym, Regex
from tasks.reward.answers import final_part, find_answers, is_prose
from tasks.reward.equality import compare_quickly, compare_symbolically
from tasks.reward.numbers import to_number
from tasks.reward.outcome import Answered, Outcome

_LETTER = re.compile(r"(?:\\text(?:bf)?\{)?\s*\(?([A-Za-z])\)?\s*\}?(?:[.:)]\s.*)?\.?", re.DOTALL)
_NAMED_LETTER = re.compile(r"(?i:\b(?:answer|option|choice)(?: is)?) ?:? ?(?:\(([A-Z])\)|([A-Z])\b)")


def exact(_: Exact, answered: Answered) -> bool | None:
    """Right is the same text as the gold, apart from case, runs of spaces and a full stop at the end."""
    gold = _normalise(answered.question.gold)
    return gold in map(_normalise, _answers(answered)) if gold else None


def numeric(_: Numeric, answered: Answered) -> bool | None:
    """Right is a number of exactly the gold's value, however it is written: 72, 72.0, +72, 072, 144/2.

    Signs of percent and currency are units: 35% is 35, and isn't 0.35. A question whose gold isn't one number can't be
    checked.
    """
    gold = to_number(answered.question.gold)
    return gold in map(to_number, _answers(answered)) if gold is not None else None


def math_at_once(_: Math, answered: Answered) -> Outcome | None:
    """Decide the plain cases; None leaves the sample to `math`. An empty gold can't be checked."""
    gold = answered.question.gold
    if not compare_quickly(gold, gold):
        return Outcome.of(None)
    verdicts = [compare_quickly(answer, gold) for answer in _expressions(answered)]
    if True in verdicts:
        return Outcome.of(True)
    return None if None in verdicts else Outcome.of(False)


def math(_: Math, answered: Answered) -> bool:
    """Right is what is mathematically equal to the gold; see `equality`."""
    gold = answered.question.gold
    undecided = [answer for answer in _expressions(answered) if compare_quickly(answer, gold) is None]
    return any(compare_symbolically(answer, gold) for answer in undecided)


def choice(_: Choice, answered: Answered) -> bool | None:
    """Right is the gold's letter: `C`, `(c)`, `C. Paris`, `The answer is (C)`; two letters are no answer."""
    gold = _letter(answered.question.gold)
    if gold is None:
        return None
    answers = _answers(answered)
    letters = {letter for answer in answers if (letter := _letter(answer))}
    if not letters and answers:
        named = _NAMED_LETTER.findall(" ".join(answers[0].split()))
        letters = {bracketed or bare for bracketed, bare in named[-1:]}
    return letters == {gold}


def regex(settings: Regex, answered: Answered) -> bool | None:
    """Right is a response in which the pattern is found after its thinking."""
    gold = answered.question.gold
    if "{gold}" in settings.pattern and not gold:
        return None
    final = final_part(answered.text)
    return final is not None and re.search(settings.pattern.replace("{gold}", re.escape(gold)), final) is not None


def json_value(settings: Json, answered: Answered) -> bool | None:
    """Right is JSON with the gold's value: the order of keys doesn't count, 1 is 1.0, and true isn't 1.

    With `field` the answer is an object that has the gold under that key, as JSON or as text. JSON may stand in a
    fenced block. A question whose gold isn't JSON can't be checked without `field`.
    """
    gold = answered.question.gold.strip()
    expected = [_canonical(gold)] + ([json.dumps(gold)] if settings.field else [])
    if not gold or expected == [None]:
        return None
    for answer in _answers(answered)[:1]:
        fenced = answer.split("```")
        block = fenced[-2] if len(fenced) > 2 else answer
        value = _canonical(block.removeprefix("json"), settings.field)
        return value is not None and value in expected
    return False


def reasoning_gym(_: ReasoningGym, answered: Answered) -> bool:
    """Right is what the task's own verifier gives full marks, 1.0.

    Its partial marks don't count: many verifiers give some to any text that contains the gold, or to any text at all,
    and a policy would learn to collect those. The verifiers want the bare answer, which here is the enclosed text or,
    with nothing enclosed, the whole text or its last number.
    """
    entry = json.loads(answered.question.metadata)
    verify = _verifier(entry["metadata"]["source_dataset"])
    return any(verify(answer=answer, entry=entry) >= 1.0 for answer in _answers(answered))


def python(settings: Python, answered: Answered) -> float | None:
    """What the user's function returns for the response's whole text and the question: from 0, wrong, to 1, right."""
    return load_function(settings.function)(answered.text, answered.question)


@cache
def load_function(path: str) -> Callable[..., Any]:
    """Import `module.function`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _answers(answered: Answered) -> list[str]:
    return find_answers(answered.text, answered.cut)


def _expressions(answered: Answered) -> list[str]:
    """The readings of the answer that may equal the gold. A text's last number counts only if the gold is a number."""
    first, *rest = _answers(answered) or [""]
    numbers = rest if to_number(answered.question.gold) is not None else []
    return numbers if numbers and is_prose(first) else [first, *numbers]


@cache
def _verifier(task: str) -> Callable[..., float]:
    # Importing its hundred tasks takes a second that other kinds needn't pay.
    from reasoning_gym import get_score_answer_fn

    verifier: Any = get_score_answer_fn(task)
    return verifier


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".")


def _letter(text: str) -> str | None:
    match = _LETTER.fullmatch(text.strip().strip("$*").strip())
    return match[1].upper() if match else None


def _canonical(text: str, field: str | None = None) -> str | None:
    """Return a JSON text, or the field in it, in the one form that equal values share; None for any other text."""
    try:
        value = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse)
        return json.dumps(value if field is None else value[field], sort_keys=True, default=_number)
    except (ValueError, ArithmeticError, RecursionError, KeyError, TypeError):
        return None


def _number(value: Decimal) -> dict[str, str]:
    return {"number": str((value + 0).normalize())}  # + 0 turns -0 into 0


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
