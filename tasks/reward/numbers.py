r"""Numbers in text: which there are, and what they are worth.

A number may have a sign, thousands separators (`1,234`), decimals, a denominator (`3/4`) and leading zeros. The signs
U+2212 and U+2013 (en dash) are minus signs. Currency and percent signs are taken for units and don't count: `35%` is
35. LaTeX's `7{,}250` and `\$5` are read as `7,250` and `5`. Exponents are not read.
"""

import re
from fractions import Fraction

# Characters of the longest number, and of the end of a text in which its last number is looked for. Golds are far
# shorter; without a limit a long response of digits could take minutes.
_LONGEST = 1000

_UNSIGNED = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:/0*[1-9][0-9]*)?"
_WHOLE = re.compile(rf"([+-]?{_UNSIGNED})\.?")
# A dash after an operand is an operator or a range, not a sign. A number doesn't start or end within another one
# (1.2.3, 1/2/2024, 1e5) or after a letter (x2).
_WITHIN = re.compile(
    rf"(?:(?<![A-Za-z0-9_)\]}}])[+-])?(?<![A-Za-z0-9_./]){_UNSIGNED}(?![0-9]|[./][0-9]|,[0-9]{{3}}(?![0-9])|[eE][+-]?[0-9])"
)
_BETWEEN_GUESSES = re.compile(r"(?:[,;]?[ \t]*(?:or|and)|[,;])?")
_PLAIN = {"\u2212": "-", "\u2013": "-", "{,}": ",", r"\$": "", "$": "", r"\%": "", "%": ""}
_DISPLAY = (r"\(", r"\)", r"\[", r"\]", r"\,", r"\!")


def to_number(text: str) -> Fraction | None:
    """Return the value of a text that is one number and nothing else, exactly; None for any other text."""
    match = _WHOLE.fullmatch(_plain(text).strip()) if len(text) <= _LONGEST else None
    return Fraction(match[1].replace(",", "")) if match else None


def last_number(text: str) -> str | None:
    """Return the last number in the last 1000 characters of a text, as it stands there but for signs and units.

    None where there is none, and where it ends a list of numbers (`1, 2, 3`, `1 or 2`, `1 2`): that is guessing.
    """
    text = _plain(text[-_LONGEST:])
    numbers = list(_WITHIN.finditer(text))
    if not numbers:
        return None
    if len(numbers) > 1:
        between = text[numbers[-2].end() : numbers[-1].start()].strip(" \t")
        if _BETWEEN_GUESSES.fullmatch(between):
            return None
    return numbers[-1].group()


def _plain(text: str) -> str:
    for written, meant in _PLAIN.items():
        text = text.replace(written, meant)
    for mark in _DISPLAY:
        text = text.replace(mark, " ")
    return text
