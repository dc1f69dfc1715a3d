"""Kinds of accuracy: whether a response is right.

Each function takes the part's settings and a sample. It returns whether the response is right, or None where the
question itself can't be checked, whatever the response. `answers` says what counts as the answer.
"""

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache, lru_cache
from typing import Any

from configs.reward import Choice, Exact, Json, Math, Numeric, Python, ReasoningGym, Regex
from tasks.reward.answers import Answer, final_part, find_answer, read_answer
from tasks.reward.equality import compare_quickly, compare_symbolically
from tasks.reward.letters import letter_of
from tasks.reward.notation import normalise
from tasks.reward.numbers import stated_quantity
from tasks.reward.outcome import Answered, Outcome


def exact(_: Exact, answered: Answered) -> bool | None:
    """Right is the same text as the gold, apart from case, runs of spaces and a full stop at the end."""
    gold, answer = _gold(answered), _answer(answered)
    if not gold.text.strip():
        return None
    return answer is not None and _plain(gold.text) in (_plain(answer.text), _plain(answer.expression))


def numeric(_: Numeric, answered: Answered) -> bool | None:
    """Right is a number of the gold's value, however it is written: 72, 72.0, +72, 072, 144/2, $72, 72 people.

    See `numbers` for what is one. 35% is 35, and isn't 0.35. A question whose gold isn't one number can't be checked.
    """
    gold, answer = stated_quantity(_gold(answered).expression), _answer(answered)
    if gold is None:
        return None
    given = stated_quantity(answer.expression) if answer else None
    return given is not None and replace(given, percent=False).equals(replace(gold, percent=False))


def math_at_once(_: Math, answered: Answered) -> Outcome | None:
    """Decide the plain cases; None leaves the sample to `math`. An empty gold can't be checked."""
    gold, answer = _gold(answered).expression, _answer(answered)
    if not gold:
        return Outcome.of(None)
    if answer and answer.text == answered.question.gold.strip():
        return Outcome.of(True)
    verdict = compare_quickly(answer.expression, gold) if answer else False
    return None if verdict is None else Outcome.of(verdict)


def math(_: Math, answered: Answered) -> bool:
    """Right is what is mathematically equal to the gold; see `equality`."""
    answer = _answer(answered)
    return answer is not None and compare_symbolically(answer.expression, _gold(answered).expression)


def choice(_: Choice, answered: Answered) -> bool | None:
    """Right is the gold's letter: `C`, `(c)`, `C. Paris`, `The answer is (C)`; two letters are no answer."""
    gold, answer = letter_of(answered.question.gold), _answer(answered)
    if gold is None:
        return None
    return answer is not None and letter_of(answer.text) == gold


def regex(settings: Regex, answered: Answered) -> bool | None:
    """Right is a response in which the pattern is found after its thinking."""
    gold = answered.question.gold
    if "{gold}" in settings.pattern and not gold:
        return None
    final = final_part(answered.said)
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
    answer = _answer(answered)
    if answer is None:
        return False
    fenced = answer.text.split("```")
    block = fenced[-2] if len(fenced) > 2 else answer.text
    value = _canonical(block.removeprefix("json"), settings.field)
    return value is not None and value in expected


def reasoning_gym(_: ReasoningGym, answered: Answered) -> bool:
    """Right is what the task's own verifier gives full marks, 1.0.

    Its partial marks don't count: many verifiers give some to any text that contains the gold, or to any text at all,
    and a policy would learn to collect those. The verifiers want the bare answer, which here is the enclosed text or,
    with nothing enclosed, the whole text or what it says last.

    An entry is stored as JSON, which makes lists of its tuples, and some verifiers compare tuples (arc_agi, rearc). The
    task's own answer tells: if only with tuples it gets full marks, the verifier is given tuples.
    """
    answer = _answer(answered)
    if answer is None:
        return False
    metadata = answered.question.metadata
    read = _with_tuples if _compares_tuples(metadata) else json.loads
    number = stated_quantity(answer.expression)
    readings = [answer.text, answer.expression, *([str(number.value)] if number else [])]
    return any(_full_marks(reading, read(metadata)) for reading in dict.fromkeys(readings))


def python(settings: Python, answered: Answered) -> float | None:
    """What the user's function returns for the response's whole text and the question: from 0, wrong, to 1, right."""
    return load_function(settings.function)(answered.text, answered.question)


@cache
def load_function(path: str) -> Callable[..., Any]:
    """Import `module.function`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _answer(answered: Answered) -> Answer | None:
    return find_answer(answered.said, answered.cut)


@lru_cache(1024)
def _read_gold(gold: str) -> Answer:
    return read_answer(gold)


def _gold(answered: Answered) -> Answer:
    return _read_gold(answered.question.gold)


def _full_marks(answer: str, entry: dict[str, Any]) -> bool:
    with localcontext():  # Some verifiers set the precision of all decimals of the process.
        return _verifier(entry["metadata"]["source_dataset"])(answer=answer, entry=entry) >= 1.0


@lru_cache(maxsize=1024)
def _compares_tuples(metadata: str) -> bool:
    """Whether the own answer of an entry is right only if its lists are tuples; not where it states none."""
    own = json.loads(metadata).get("answer")
    return bool(own) and not _is_right(own, json.loads(metadata)) and _is_right(own, _with_tuples(metadata))


def _is_right(own: str, entry: dict[str, Any]) -> bool:
    try:
        return _full_marks(own, entry)
    except Exception:  # A verifier may raise anything over a list where it expects a tuple.
        return False


def _with_tuples(metadata: str) -> dict[str, Any]:
    def tuples(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: tuples(inner) for key, inner in value.items()}
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return tuples(json.loads(metadata))


@cache
def _verifier(task: str) -> Callable[..., float]:
    # Importing its hundred tasks takes a second that other kinds needn't pay.
    from reasoning_gym import get_score_answer_fn

    verifier: Any = get_score_answer_fn(task)
    return verifier


def _plain(text: str) -> str:
    return normalise(text).casefold().removesuffix(".")


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
