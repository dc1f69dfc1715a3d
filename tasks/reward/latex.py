r"""Expressions in LaTeX that math-verify reads: plain names, signs and numbers get their commands.

| written | read as |
|---|---|
| `sqrt(2)`, `exp(16)-1`, `2*pi`, `x**2`, `abs(x)` | `\sqrt{2}`, `e^{16}-1`, `2 \cdot \pi`, `x^2`, `\|x\|` |
| `sin x`, `arctan(x)`, `infinity`, `<=` | `\sin x`, `\arctan(x)`, `\infty`, `\le` |
| `12 000 x`, `y = 26,000 x` | `12000 x`, `y = 26000 x`; `(1,234)` may be a pair |
| `1 1/2 x`, `1e5`, `0.\overline{3}` | `1\frac{1}{2} x`, `1\times 10^{5}`, `\frac{1}{3}` |
| `\cos 60^\circ` | in radians |
"""

import re

from tasks.reward.notation import up_to_closing_brace
from tasks.reward.numbers import to_quantity

MIXED = re.compile(r"(?<![\d.,])(\d+) +(\d+)/(\d+)(?![\d.,])")
"""A mixed number in a text."""

_COMMAS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d ,])")
_REPEATING = re.compile(r"\d*\.\d*\\overline ?\{ ?\d+ ?\}")
_SCIENTIFIC = re.compile(r"(?<![A-Za-z\d.])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,4})(?![\w.])")
_FUNCTION = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln"
_FUNCTIONS = re.compile(rf"(?<![\\A-Za-z])({_FUNCTION}|max|min|gcd|pi|infinity|inf|oo)(?![A-Za-z])")
_TRIGONOMETRY = re.compile(r"(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_PAIR = re.compile(r"[(\[]\s*\d{1,3}(?:,\d{3})+\s*[)\]]")
_CONSTANTS = {"infinity": "infty", "inf": "infty", "oo": "infty"}
_SIGNS = {"**": "^", "=/=": r"\ne ", "<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "*": r" \cdot ", "%": r"\%"}
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_OPENING = {
    "sqrt(": (r"\sqrt{", "}"),
    r"\sqrt(": (r"\sqrt{", "}"),
    "cbrt(": (r"\sqrt[3]{", "}"),
    "exp(": ("e^{", "}"),
    "abs(": ("|", "|"),
    "^(": ("^{", "}"),
}
_CALL = re.compile(r"(?<![\\A-Za-z])(?:\\?sqrt|cbrt|exp|abs)\(|\^\(")
_EXPONENT = re.compile(r"\^(-?\d{2,}|-\d|-[A-Za-z])")
_BRACKETS = str.maketrans("(){}", "{}()")


def to_latex(text: str) -> str:
    """Return an expression in LaTeX that math-verify reads: plain names, signs and numbers have their commands."""
    text = _REPEATING.sub(_as_fraction, text)
    text = _THOUSANDS.sub(lambda number: number.group().replace(" ", ""), text)
    if "," not in _COMMAS.sub("", text) and not _PAIR.fullmatch(text):
        text = _COMMAS.sub(lambda number: number.group().replace(",", ""), text)
    if _TRIGONOMETRY.search(text):
        text = re.sub(r"(\d+(?:\.\d+)?) ?\^\\circ ?", r"(\1\\cdot\\frac{\\pi}{180})", text)
    text = MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = _SCIENTIFIC.sub(lambda number: rf"{number[1]}\times 10^{{{int(number[2])}}}", text)
    text = _EXPONENT.sub(r"^{\1}", _SIGN.sub(lambda sign: _SIGNS[sign.group()], text))
    text = re.sub(r"(?<=\d) ?[xX] ?(?=10\^)", r"\\times ", text)
    while call := _CALL.search(text):
        inside = up_to_closing_brace(text[call.end() :].translate(_BRACKETS))
        opening, closing = _OPENING[call.group()]
        content = text[call.end() : call.end() + len(inside)]
        text = f"{text[: call.start()]}{opening}{content}{closing}{text[call.end() + len(inside) + 1 :]}"
    return _FUNCTIONS.sub(lambda name: rf"\{_CONSTANTS.get(name[1], name[1])} ", text)


def _as_fraction(number: re.Match[str]) -> str:
    quantity = to_quantity(number.group())
    return rf"\frac{{{quantity.value.numerator}}}{{{quantity.value.denominator}}}" if quantity else number.group()
