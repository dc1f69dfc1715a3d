r"""Whether an answer is mathematically equal to the gold.

Most answers are decided at once by `compare_quickly`: the same text, or two plain numbers. math-verify decides the
rest. It parses the texts to symbolic expressions and may take for ever: call `compare_symbolically` only in a process
that can be killed. Both see the texts as `_bare` leaves them, so a gold always equals itself, unless `_bare` leaves
nothing.

What is ours, and what math-verify would do instead:

- A minus may be U+2212 or an en dash; the latter doesn't parse there.
- `1 1/2` is one and a half, `12 000` twelve thousand and `1e5` a hundred thousand, not 1, 0 and 5e. Other digits with
  only a space between them, `1 2`, are no answer; math-verify multiplies them.
- A full stop at the end doesn't count; `72.` doesn't parse there.
- Texts of more than 2,000 characters are equal only if they are the same.

A percent sign: `35\%` is equal to 35, to `35 percent` and to 0.35, while 35 isn't equal to 0.35, as in math-verify.
"""

import logging
import re
from functools import cache
from typing import Any

from tasks.reward.numbers import to_number

LONGEST = 2000

_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_MIXED = re.compile(r"(?<![\d.,])(\d+) +(\d+)/(\d+)(?![\d.,])")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d ,])")
_SCIENTIFIC = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))[eE]([+-]?\d{1,4})")
_TWO_NUMBERS = re.compile(r"\d\s+[\d.]")
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
# math-verify rounds decimals to 6 places; whatever is this close is left to it.
_CLOSE = 1e-5


def compare_quickly(answer: str, gold: str) -> bool | None:
    """Return whether they are equal; None where only `compare_symbolically` can tell.

    Its decisions agree with `compare_symbolically`.
    """
    answer, gold = _bare(answer), _bare(gold)
    if not answer:
        return False
    if answer == gold:
        return True
    if max(len(answer), len(gold)) > LONGEST or _is_two_numbers(answer):
        return False
    if "%" in answer or "%" in gold:
        return None
    left, right = to_number(answer), to_number(gold)
    if left is None or right is None:
        return None
    if left == right:
        return True
    exact = "." not in answer and "." not in gold
    return False if exact or abs(left - right) > _CLOSE * max(1, abs(right)) else None


def compare_symbolically(answer: str, gold: str) -> bool:
    """Return whether math-verify finds them equal. May never return, crash its process or fill the memory."""
    math_verify = _math_verify()
    configuration = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]
    parsed = [
        math_verify.parse(rf"\boxed{{{_bare(text)}}}", configuration, parsing_timeout=None) for text in (gold, answer)
    ]
    return math_verify.verify(*parsed, timeout_seconds=None)


def warm_up() -> None:
    """Fill the parser's and sympy's caches. It takes a second, which processes forked afterwards save."""
    for answer, gold in _USUAL:
        compare_symbolically(answer, gold)


def _bare(text: str) -> str:
    """Return a text without delimiters, a full stop and odd spaces, in the forms that math-verify reads."""
    text = " ".join(text.translate(_MINUS).split()).removesuffix(".").strip()
    if len(text) > LONGEST:
        return text
    for opening, closing in _DELIMITERS:
        inner = text.removeprefix(opening).removesuffix(closing)
        if len(inner) == len(text) - len(opening) - len(closing) and opening not in inner and closing not in inner:
            text = inner.strip().removesuffix(".").strip()
    if text.startswith(r"\boxed{") and text.endswith("}"):
        text = text.removeprefix(r"\boxed{").removesuffix("}").strip()
    if scientific := _SCIENTIFIC.fullmatch(text):
        return rf"{scientific[1]}\times 10^{{{int(scientific[2])}}}"
    text = _THOUSANDS.sub(lambda number: number.group().replace(" ", ""), text)
    return _MIXED.sub(r"\1\\frac{\2}{\3}", text)


def _is_two_numbers(text: str) -> bool:
    # A LaTeX command may take its arguments like this: `\frac 1 2`.
    return "\\" not in text and _TWO_NUMBERS.search(text) is not None


@cache
def _math_verify() -> Any:
    import math_verify  # takes half a second that other kinds of reward needn't pay

    # Its warnings say that timeouts are off: the pool has its own.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return math_verify
