r"""Numbers as a person reads them: what a text is worth that is one number, with or without a unit.

| written | value | |
|---|---|---|
| `72`, `72.0`, `72.`, `+72`, `072`, `(72)` | 72 | |
| `1,234`, `1 234`, `1{,}234`, `1\,234`, `1'234` | 1234 | groups of three digits; `1,2` is a list, `1 2` two numbers |
| `3/4`, `\frac{3}{4}`, `-\frac34`, `0.75` | 3/4 | |
| `1 1/2`, `1\frac{1}{2}`, `1½` | 3/2 | mixed |
| `10^5`, `10**5`, `5 x 10^3`, `5\times10^{3}`, `5e3` | 10^5, 5000 | a power, whole: never its exponent |
| `0.\overline{3}` | 1/3 | |
| `$5`, `\$5`, `€5`, `-$5`, `18 dollars`, `40 cm^2`, `74^\circ` | 5, 18, 40, 74 | a unit, kept beside the value |
| `35%`, `35 percent` | 35 | marked as percent |
| `2 million`, `5k` | 2000000, 5000 | a scale |

A number never begins inside a larger term: `x2`, `2x` and `1.2.3` are none. A comma is no decimal point.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from tasks.reward.units import as_unit, same_unit

# Characters of the longest number. Without a limit a long response of digits could take minutes.
_LONGEST = 1000
# Decimal digits of the largest power that is worked out.
_LARGEST_POWER = 1000
# A decimal must show six digits to stand for a number that has no end, such as 1/3.
_TELLING = 10**5
# How far a number with 53 binary digits may be from what it stands for, and how many decimal ones it is written with.
_DOUBLE = Fraction(1, 2**53)
_SHORTEST_DOUBLE, _LONGEST_DOUBLE = 10**14, 10**17


@dataclass(frozen=True)
class Quantity:
    """A number and what stands with it.

    Attributes:
        value: The number, exactly; that of `35%` is 35.
        unit: The unit in one spelling, see `units.as_unit`; empty where there is none.
        percent: It is a percentage.
        last: What its last digit counts, 1/100 for `0.33`; None where it is written without a decimal point. See
            `is_rounded`.
    """

    value: Fraction
    unit: str = ""
    percent: bool = False
    last: Fraction | None = None

    def equals(self, gold: "Quantity") -> bool:
        """Tell whether it answers a gold: the same value, and no other unit than the gold's.

        A percentage is worth its number or a hundredth of it: `35%` is 35 and 0.35, while 35 isn't 0.35.
        """
        if not same_unit(self.unit, gold.unit):
            return False
        if self.percent == gold.percent:
            return _is_same(self, gold)
        share, number = (self, gold) if self.percent else (gold, self)
        hundredth = replace(share, value=share.value / 100, last=share.last and share.last / 100)
        return _is_same(share, number) or _is_same(hundredth, number)


def to_quantity(text: str) -> Quantity | None:
    """Return what a text says that is one number with or without a unit, and nothing else; None for any other text.

    Args:
        text: In the notation of `notation.normalise`.
    """
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return None
    if text[0] + text[-1] in ("()", "[]") and (inner := to_quantity(text[1:-1])):
        return inner
    before = _BEFORE.match(text)
    assert before  # it matches nothing, too
    form, value = _read(text, before.end())
    if form is None or (before[1] and before[3]):
        return None
    end = form.end()
    if scale := _SCALE.match(text, end):
        value, end = value * _SCALES[scale[2]], scale.end()
        if scale[3] == "":  # `\text{million dollars}`
            text, end = rf"\text{{{text[end:]}", 0
    last = _last_digit(form.group(), value)
    if "-" in (before[1], before[3]):
        value = -value
    if _PERCENT.fullmatch(text, end):
        return None if before[2] else Quantity(value, percent=True, last=last)
    currency = before[2] or ""
    if not currency and (behind := _BEHIND.match(text, end)):
        currency, end = behind[1], behind.end()
    unit = as_unit(text[end:])
    if unit is None:
        return None
    return Quantity(value, unit or ("dollar" if "$" in currency else ""), last=last)


def stated_quantity(text: str) -> Quantity | None:
    """Return what a text comes to: `72`, `x = 72`, `72 = x`, `70 + 2 = 72`; None where that isn't one number."""
    if (quantity := to_quantity(text)) or not _EQUALS.search(text):
        return quantity
    left, _, right = _EQUALS.split(text)[-3:]
    return to_quantity(right) or (to_quantity(left) if _NAME.fullmatch(right.strip()) else None)


def is_rounded(decimal: Fraction, last: Fraction, exact: Fraction) -> bool:
    """Tell whether a decimal is an exact value that was rounded, not one that is merely near it.

    It is rounded to its own last digit, or to the nearest double, and shows at least six digits that count: 0.333333
    is 1/3, and 0.33 or 0.333334 is not. So the distance is relative to the value: 0.0000003 is not 0.0000004.

    Args:
        last: What the decimal's last digit counts.
    """
    digits = abs(decimal / last)
    nearest = abs(exact) * _DOUBLE if _SHORTEST_DOUBLE <= digits < _LONGEST_DOUBLE else 0
    return digits >= _TELLING and abs(decimal - exact) <= max(last / 2, nearest)


def _is_same(left: Quantity, right: Quantity) -> bool:
    if left.last and not right.last:
        return left.value == right.value or is_rounded(left.value, left.last, right.value)
    if right.last and not left.last:
        return left.value == right.value or is_rounded(right.value, right.last, left.value)
    return left.value == right.value


def _read(text: str, start: int) -> tuple[re.Match[str], Fraction] | tuple[None, Fraction]:
    """Return the form of the number that begins there, and its worth; no form for what has no worth, such as 1/0."""
    for pattern, value in _FORMS:
        if form := pattern.match(text, start):
            try:
                return form, value(*(group for group in form.groups() if group is not None))
            except (ZeroDivisionError, OverflowError):
                break
    return None, Fraction(0)


def _decimal(text: str) -> Fraction:
    text = re.sub("[, '+]", "", text)
    return Fraction(f"0{text}" if text.startswith(".") else text)


def _fraction(above: str, below: str) -> Fraction:
    return _decimal(above) / _decimal(below)


def _mixed(whole: str, above: str, below: str) -> Fraction:
    if int(above) >= int(below):
        raise OverflowError  # `11 6/6` is two numbers
    return _decimal(whole) + _fraction(above, below)


def _repeating(whole: str, places: str, repeated: str) -> Fraction:
    cycle = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(places))
    return _decimal(f"{whole}.{places}0") + cycle


def _power(base: str, exponent: str) -> Fraction:
    if len(base) * abs(int(exponent)) > _LARGEST_POWER:
        raise OverflowError
    return _decimal(base) ** int(exponent)


def _scientific(number: str, exponent: str) -> Fraction:
    return _decimal(number) * _power("10", exponent)


def _last_digit(text: str, value: Fraction) -> Fraction | None:
    """Return what the last digit of a decimal counts that is worth `value` with its power of ten; None for others."""
    decimal = re.match(rf"{_DIGITS}?\.([0-9]*)(?![0-9]|\\overline|.*(?:/|frac))", text)
    if not decimal:
        return None
    number = _decimal(decimal.group())
    return (value / number if number else 1) * Fraction(1, 10 ** len(decimal[1]))


_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?:[ '][0-9]{3})+|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)"
_BRACED = rf"\{{ ?([+-]?{_DECIMAL}) ?\}}"
_EXPONENT = r"(?:\^|\*\*) ?(?:\{ ?([+-]?[0-9]{1,4}) ?\}|\(([+-]?[0-9]{1,4})\)|([+-]?[0-9]{1,4}))"
_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Fraction]], ...] = tuple(
    (re.compile(pattern), value)
    for pattern, value in (
        (rf"({_DIGITS}|)\.([0-9]*)\\overline ?\{{([0-9]+)\}}", _repeating),
        (rf"({_DIGITS}) ([0-9]+)/([0-9]+)(?![0-9])", _mixed),
        (rf"({_DIGITS}) ?\\frac ?\{{ ?([0-9]+) ?\}} ?\{{ ?([0-9]+) ?\}}", _mixed),
        (rf"({_DECIMAL}) ?/ ?({_DECIMAL})", _fraction),
        (rf"\\frac ?{_BRACED} ?{_BRACED}", _fraction),
        (rf"({_DECIMAL}) ?(?:\\times|\\cdot|[xX*]) ?10 ?{_EXPONENT}", _scientific),
        (rf"({_DECIMAL})[eE]([+-]?[0-9]{{1,4}})", _scientific),
        (rf"({_DIGITS}) ?{_EXPONENT}", _power),
        (rf"({_DECIMAL})", _decimal),
    )
)
"""The forms of a number without its sign, the longest first, and what each is worth."""

_CURRENCY = r"\\?[$\u20ac\u00a3\u00a5\u20b9]"
_BEFORE = re.compile(rf"([+-]?) ?({_CURRENCY})? ?([+-]?) ?")
_BEHIND = re.compile(rf" ?({_CURRENCY})")
_SCALE = re.compile(r" ?(\\text\{ ?)?(hundred|thousand|million|billion|trillion|k)(?![A-Za-z])(?(1) ?(\}?))")
_SCALES = {"hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PERCENT = re.compile(r" ?(?:%|(?:\\text\{)? ?(?:percent(?:age)?|per cent|pct)\b\.?(?: ?\})?)", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![<>!])(=|\\approx)")
_NAME = re.compile(r"[A-Za-z](?: ?_ ?(?:\{?\w+\}?))?")
