r"""Whether an answer is mathematically equal to the gold. Both are expressions as `answers` reads them.

Most answers are decided at once by `compare_quickly`: the same text, two numbers (see `numbers`), two words.
math-verify decides the rest. It parses the texts to symbolic expressions and may take for ever: call
`compare_symbolically` only in a process that can be killed.

What is ours, and what math-verify would do instead:

| | here | math-verify alone |
|---|---|---|
| closeness | exact; a decimal may be a rounded value: 0.333333 is 1/3 | absolute, to 6 places: 3e-7 is 4e-7 |
| `1 1/2`, `12 000`, `1e5`, `0.\overline{3}` | 3/2, 12000, 100000, 1/3 | 1, 0, 5e, nothing |
| `1 2`, other digits with a space between | no answer | a product |
| `pi/2`, `exp(16)-1`, `sqrt(2)`, `2*x` | as in LaTeX | letters |
| `18 people`, `120_{5}` | any unit or base; another than the gold's is wrong | a list of units, no bases |
| `-2 \le x \le 7` for `[-2,7]` | equal, both ways; unions with `or` too | one way |
| `x \equiv 2 \pmod 5` | equal modulo 5 | the same text |
| `2 = x` | `x = 2` | an equation |
| `x=-2 \text{ or } x=1` | the list `-2, 1` | |
| words, `Evelyn` | letters count, not their case | a product of letters |

Texts of more than 2,000 characters are equal only if they are the same.
"""

import importlib
import logging
import re
from dataclasses import replace
from functools import cache
from typing import Any

from tasks.reward.latex import MIXED, to_latex
from tasks.reward.numbers import Quantity, stated_quantity, to_quantity
from tasks.reward.units import as_unit, same_unit

LONGEST = 2000
_LONGEST_LIST = 200

_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]{4,}|(?=.*[^\W\d_]{3})(?:[^\W\d_]+[ '-]+)+[^\W\d_]+")
_FORMULA_WORDS = re.compile(r"\b(?:(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|sqrt|cbrt|infinity|and|or)\b")
_TWO_NUMBERS = re.compile(r"(?<![\d^])\d+\s+[\d.]")
_MODULO = re.compile(r"(?:(.+?) ?\\equiv ?)?(-?\d+) ?\\pmod\{ ?(\d+) ?\}")
_ALTERNATIVES = re.compile(r"\s*(?:\\text\{\s*or\s*\}|\bor\b|\\lor\b)\s*")
_CONJUNCTION = re.compile(r"\s*(?:,?\s*\\text\{\s*and\s*\}|,?\s*\band\b)\s*")
_RELATION = re.compile(r"[<>]|\\[lg][et](?![A-Za-z])")
_SEPARATOR = re.compile(r"\s*[,;]\s*(?!\d{3}(?!\d))|\s*[,;]\s+")
_NAME = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?")
_TURNED = re.compile(r"([^=<>]+?)\s*=\s*([A-Za-z](?:_\{?\w+\}?)?)")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z](?:_\{?\w+\}?)?)\s*=\s*([^=<>]+)")
_NAMED = re.compile(r"(?:\\?[A-Za-z]+(?: ?_ ?(?:\{[^{}]*\}|\w))?|\\text\{[^{}]*\})(?: ?\([^()]*\))? ?= ?([^=<>]+)")
_CURRENCY = re.compile(r"\\\$|[\u20ac\u00a3\u00a5\u20b9]")
_USUAL = (
    (r"\frac{1}{2}", "0.5"),
    (r"(x+1)(x-1)", "x^2 - 1"),
    (r"2\sqrt{3} + \pi", r"\sqrt{12} + \pi"),
    (r"x \in [1, 2)", "[1,2)"),
    (r"\{1, 2\}", "2, 1"),
    ("(1, 2, 3)", "(1,2,4)"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}"),
    (r"5 \text{ cm}", "x = 5"),
)


def compare_quickly(answer: str, gold: str) -> bool | None:
    """Return whether they are equal; None where only `compare_symbolically` can tell.

    Args:
        answer: What the response says, `answers.Answer.expression`.
        gold: What the gold says, read in the same way.
    """
    if not answer:
        return False
    if answer == gold:
        return True
    if max(len(answer), len(gold)) > LONGEST:
        return False
    if r"\approx" in answer:
        exact = _exact_part(answer)
        return compare_quickly(answer.rpartition(r"\approx")[2].strip(), gold) or compare_quickly(exact, gold)
    expected, given = to_quantity(gold), stated_quantity(answer)
    if expected and given:
        return given.equals(expected)
    members, named = _members(gold), _members(answer)
    if len(members) > 1 and named:
        return _are_same(named, members)
    if _is_words(answer) or _is_words(gold):
        return _letters(answer) == _letters(gold)
    if _is_two_numbers(answer):
        return False
    modulo = _MODULO.fullmatch(answer), _MODULO.fullmatch(gold)
    if modulo[0] and modulo[1]:
        return _is_congruent(modulo[0], modulo[1])
    return None


def compare_symbolically(answer: str, gold: str) -> bool:
    """Return whether math-verify finds them equal. May never return, crash its process or fill the memory."""
    (answer, unit), (gold, expected) = _without_unit(answer), _without_unit(gold)
    if not same_unit(unit, expected):
        return False
    from tasks.reward import closeness

    answer, gold = _without_name(_exact_part(answer), gold)
    expected, given = _parse(gold), _parse(answer)
    if _math_verify().verify(expected, given, allow_set_relation_comp=True, timeout_seconds=None):
        return True
    return any(closeness.are_same_term(left, right) for left in given for right in expected)


def _without_name(answer: str, gold: str) -> tuple[str, str]:
    """Drop `V =` where only one of two texts has it."""
    left, right = _NAMED.fullmatch(answer), _NAMED.fullmatch(gold)
    if left and not right and "=" not in gold:
        return left[1], gold
    if right and not left and "=" not in answer:
        return answer, right[1]
    return answer, gold


def warm_up() -> None:
    """Fill the parser's and sympy's caches. It takes a second, which processes forked afterwards save."""
    for answer, gold in _USUAL:
        compare_symbolically(answer, gold)


def _exact_part(text: str) -> str:
    r"""Return what stands before `\approx`, except in `x \approx 3`."""
    exact = text.rpartition(r"\approx")[0].strip()
    return exact if exact and not _NAME.fullmatch(exact) else text.replace(r"\approx", "=")


def _is_words(text: str) -> bool:
    r"""Whether a text is words, not mathematics: `Evelyn`, `\text{east}`, `not possible`."""
    return _WORDS.fullmatch(_letters(text)) is not None and not _FORMULA_WORDS.search(text)


def _members(text: str) -> list[Quantity]:
    r"""Return the numbers of a list or set that holds nothing else: `1, 2`, `\{1, 2\}`, `1 and 2`, one number alone."""
    text = text[2:-2] if text.startswith(r"\{") and text.endswith(r"\}") else text
    if len(text) > _LONGEST_LIST:
        return []
    members = [stated_quantity(part) for part in _SEPARATOR.split(_as_list(text))]
    return [member for member in members if member] if all(members) else []


def _are_same(answers: list[Quantity], golds: list[Quantity]) -> bool:
    """Tell whether each number of one list is in the other one; their order doesn't count."""
    left = list(golds)
    for answer in answers:
        match = next((gold for gold in left if answer.equals(gold)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _letters(text: str) -> str:
    return " ".join(_TEXT.sub(r" \1 ", text).casefold().split())


def _is_two_numbers(text: str) -> bool:
    # A LaTeX command may take its arguments like this: `\frac 1 2`.
    mixed = [number for number in MIXED.finditer(text) if to_quantity(number.group())]
    return "\\" not in text and _TWO_NUMBERS.search(text) is not None and not mixed


def _is_congruent(answer: re.Match[str], gold: re.Match[str]) -> bool:
    same = answer[1] is None or gold[1] is None or answer[1].replace(" ", "") == gold[1].replace(" ", "")
    return same and answer[3] == gold[3] and (int(answer[2]) - int(gold[2])) % max(int(gold[3]), 1) == 0


def _without_unit(text: str) -> tuple[str, str]:
    """Split an expression from the unit behind it, if it has one."""
    text = _CURRENCY.sub("", text).strip()
    starts = [match.start() for match in re.finditer(r" ?\\text\{| (?=[A-Za-z]{2})|\^\\circ", text)]
    for start in starts:
        if start and (unit := as_unit(text[start:])):
            return text[:start], unit
    return text, ""


def _parse(text: str) -> Any:
    """Return a text as math-verify reads it; a union of relations, `x<1 or x>3`, as the set that it describes."""
    parts = _ALTERNATIVES.split(text)
    if len(parts) > 1 and all(_RELATION.search(part) for part in parts):
        import sympy

        sets = [_as_set(part) for part in parts]
        if all(each is not None for each in sets):
            return [sympy.Union(*sets)]
    if (turned := _TURNED.fullmatch(text)) and to_quantity(turned[1]):
        text = f"{turned[2]} = {turned[1]}"
    return _math_verify().parse(rf"\boxed{{{to_latex(_as_list(text))}}}", [_configuration()], parsing_timeout=None)


def _as_set(relation: str) -> Any:
    from math_verify.grader import unwrap_fcs

    for parsed in _parse(relation):
        try:
            unwrapped: Any = unwrap_fcs(parsed)
            return unwrapped.as_set()
        except Exception:  # whatever sympy raises on what has no set
            continue
    return None


def _as_list(text: str) -> str:
    """Write `x = -2 or x = 1`, and `3 and 4`, as lists: `-2, 1` and `3, 4`."""
    parts = re.split(rf"{_ALTERNATIVES.pattern}|{_CONJUNCTION.pattern}|[,;](?!\d{{3}}(?!\d))(?![^(\[{{]*[)\]}}])", text)
    if len(parts) < 2 or any(_RELATION.search(part) for part in parts):
        return text
    assigned = [_ASSIGNMENT.fullmatch(part) for part in parts]
    if all(assigned) and len({each[1] for each in assigned if each}) == 1:
        parts = [each[2] for each in assigned if each]
    return ", ".join(part.strip() for part in parts if part.strip())


@cache
def _configuration() -> Any:
    # Units are gone already; its own list would take the c of `5 - 5c` for one.
    normalization = replace(_math_verify().LatexExtractionConfig().normalization_config, units=False)
    return _math_verify().LatexExtractionConfig(boxed_match_priority=0, normalization_config=normalization)


@cache
def _math_verify() -> Any:
    import math_verify  # takes half a second that other kinds of reward needn't pay

    from tasks.reward import closeness

    # Its own round to six places, and take all equations without solution for one.
    grader: Any = importlib.import_module("math_verify.grader")
    grader.sympy_numeric_eq, grader.sympy_solve_and_compare = closeness.are_equal, closeness.are_same_relation
    # Its warnings say that timeouts are off: the pool has its own.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return math_verify
