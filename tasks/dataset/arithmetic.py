"""Column arithmetic: questions such as `57+85=?`, and demonstrations of how to answer them, some of them wrong."""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, ValidationError

from configs.errors import UserError
from configs.section import Section
from tasks.records.question import Question


class Settings(Section):
    """`data.settings` of the source `arithmetic`."""

    digits: int = Field(2, ge=1, le=3, description="Digits of both numbers; 4095 pairs of two-digit numbers.")
    operations: Literal["+", "-", "+-"] = Field("+", description="Sums, differences (never below zero), or both.")
    working: bool = Field(False, description="Demonstrations show the columns' results, units first, in <think>.")


def parse_settings(settings: dict[str, Any]) -> Settings:
    """Validate `data.settings`; raises UserError naming each key that is wrong."""
    try:
        return Settings.model_validate(settings)
    except ValidationError as error:
        problems = "; ".join(f"data.settings.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UserError(f"{problems}. The source arithmetic knows {', '.join(Settings.model_fields)}") from None


def questions(settings: dict[str, Any], seed: int, label: str = "arithmetic") -> list[Question]:
    """Every question that the settings allow, once each, in an order drawn from the seed.

    Of `12+34` and `34+12` only one is asked, which one is drawn from the seed: the other would give its answer away
    when one is a training and one an evaluation question. `label` is the source's name.
    """
    parsed = parse_settings(settings)
    numbers = range(10 ** (parsed.digits - 1), 10**parsed.digits)
    rng = random.Random(seed)
    pairs = [(a, b) if rng.random() < 0.5 else (b, a) for a in numbers for b in numbers if a <= b]
    sums = [(f"{a}+{b}", a + b) for a, b in pairs if "+" in parsed.operations]
    differences = [(f"{a}-{b}", a - b) for a in numbers for b in numbers if "-" in parsed.operations and a >= b]
    everything = [
        Question(id=f"{label}/{term}", text=f"{term}=?", gold=str(value), source=label)
        for term, value in sums + differences
    ]
    rng.shuffle(everything)
    return everything


def demonstration(question: Question, wrong: bool, rng: random.Random, working: bool = False) -> str:
    """A short response in the form `<think>…</think><answer>142</answer>`.

    With `working` the think part holds each column's result with the carry in it, units first: `12 14`.
    A wrong one makes a mistake that people make, and its working agrees with it: it forgets the units' carry where
    there is one. Elsewhere it is a near miss, one column off by one or two, drawn evenly.
    """
    columns, value = _calculate(question.text)
    if wrong:
        forgotten = _calculate(question.text, {1: -1}) if len(columns) > 1 and columns[0] >= 10 else None
        misses = [_calculate(question.text, {i: by}) for i in range(len(columns)) for by in (-2, -1, 1, 2)]
        columns, value = forgotten or rng.choice([miss for miss in misses if miss[1] >= 0])
    think = " ".join(map(str, columns)) if working else ""
    return f"<think>{think}</think><answer>{value}</answer>"


def _calculate(text: str, slips: Mapping[int, int] = MappingProxyType({})) -> tuple[list[int], int]:
    """Add or subtract column by column, units first: (each column's result, value).

    `slips` are mistakes: the amount that a column's result is off by.
    """
    sign = 1 if "+" in text else -1
    first, second = text.removesuffix("=?").split("+" if sign == 1 else "-")
    columns, value, carry = [], 0, 0
    for i, (x, y) in enumerate(zip(reversed(first), reversed(second), strict=True)):
        columns.append(int(x) + sign * int(y) + carry + slips.get(i, 0))
        carry, digit = divmod(columns[-1], 10)
        value += digit * 10**i
    return columns, value + carry * 10 ** len(columns)
