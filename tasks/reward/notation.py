r"""One notation for what people and models write: Unicode, LaTeX and plain text become one form, before anything else.

| written | read as |
|---|---|
| `−3`, `–3`, full-width or Arabic digits, `𝑥` | `-3`, `3`, `x` |
| `x²`, `a₁`, `½`, `√2`, `√(x+1)` | `x^{2}`, `a_{1}`, `\frac{1}{2}`, `\sqrt{2}`, `\sqrt{x+1}` |
| `3·4`, `3×4`, `6÷2`, `≤`, `∞`, `π`, `∪`, `°` | `\cdot`, `\times`, `/`, `\le`, `\infty`, `\pi`, `\cup`, `^\circ` |
| `\,` `\!` `\;` `~` `\ `, thin and no-break spaces | a space; `\!` is nothing; in `10,\!080` both are |
| `{,}`, `\%` | `,`, `%` |
| `\dfrac`, `\tfrac`, `\frac12`, `\frac 1 2` | `\frac{1}{2}` |
| `\left(`, `\right)`, `\displaystyle` | `(`, `)`, nothing |
| `\mathrm{cm}`, `\textbf{cm}`, `\mbox{cm}` | `\text{cm}`; `\text{13}`, without a letter, is `13` |
| `e` with its accent apart | composed (NFC) |
"""

import re
import unicodedata
from functools import cache

_ROOTS = {"\u221a": r"\sqrt", "\u221b": r"\sqrt[3]", "\u221c": r"\sqrt[4]"}
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a\u207b\u207f"
_LOWERED = "\u2080-\u2089"
_SIGNS = {
    "\u00d7": r"\times", "\u2a2f": r"\times", "\u00b7": r"\cdot", "\u22c5": r"\cdot", "\u2219": r"\cdot",
    "\u2264": r"\le", "\u2a7d": r"\le", "\u2266": r"\le", "\u2265": r"\ge", "\u2a7e": r"\ge", "\u2267": r"\ge",
    "\u2260": r"\ne", "\u2248": r"\approx", "\u2243": r"\approx", "\u2245": r"\approx", "\u2261": r"\equiv",
    "\u2208": r"\in", "\u222a": r"\cup", "\u2229": r"\cap", "\u2205": r"\emptyset", "\u221e": r"\infty",
    "\u00b1": r"\pm", "\u2213": r"\mp", "\u211d": r"\mathbb{R}", "\u2124": r"\mathbb{Z}", "\u2115": r"\mathbb{N}",
    "\u211a": r"\mathbb{Q}", "\u2102": r"\mathbb{C}", "\u2228": r"\lor", "\u2227": r"\land", "\u2220": r"\angle",
    "\u2026": r"\ldots",
}  # fmt: skip
_CHARACTERS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00f7\u2215\u2044", "/"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\u2061\u2062\ufeff", ""),
    **dict.fromkeys("\u00b0\u02da\u00ba", r"^\circ "),
    **dict.fromkeys("\u2018\u2019\u2032", "'"),
    **dict.fromkeys("\u201c\u201d\u2033", '"'),
    "\u2236": ":",
    "\u2217": "*",
    "\u3002": ". ",
} | {sign: f"{command} " for sign, command in _SIGNS.items()}

_UNICODE = re.compile(r"[^\x00-\x7f]")
_SCRIPTS = re.compile(f"([{_RAISED}]+)|([{_LOWERED}]+)")
_ROOT = re.compile(r"([\u221a-\u221c])\s*(?:\(((?:[^()]|\([^()]*\))*)\)|(\d+(?:\.\d+)?|[A-Za-z]|\{[^{}]*\}))")
_STYLES = (
    "text|textbf|textit|textrm|textsf|texttt|textnormal|textup|mathrm|mathbf|mathit|mathsf|mbox|hbox|emph|operatorname"
)
_STYLED = re.compile(rf"\\(?:{_STYLES})\s*\{{([^{{}}]*)\}}")
_NESTED = re.compile(rf"(\\(?:{_STYLES})\s*\{{[^{{}}]*)\\text\{{([^{{}}]*)\}}")
_LETTER = re.compile(r"[^\W\d_]")
_SPACE = re.compile(r"(?<!\\)\\[,;:> ]|~|\\q?quad\b|\\(?:thin|med|thick)?space\b|\\enspace\b")
_NOTHING = re.compile(
    r"\\!|\\displaystyle\b|\\textstyle\b|\\limits\b|\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\.?|\\mathstrut\b"
)
# TeX takes one character for an argument without braces; of a root, people mean all its digits.
_ABOVE = re.compile(r"\\[dtc]?frac(?![A-Za-z])\s*([0-9A-Za-z]|\\[A-Za-z]+)?")
_BELOW = re.compile(r"(\\frac\{[^{}]*\})\s*([0-9A-Za-z]|\\[A-Za-z]+)")
_UNDER_ROOT = re.compile(r"\\sqrt\s*(\[[^\[\]]*\])?\s*(\d+|[A-Za-z])")
# `10,\!080` and `10\!080`
_GROUPS = re.compile(r"(?<=\d),?\s*\\!\s*(?=\d{3}(?!\d))")
_ALPHABET = re.compile(
    r"\\(?:mathcal|mathscr|mathfrak|mathbf|mathit|boldsymbol|bm)\s*(?:\{\s*([A-Za-z])\s*\}|\s([A-Za-z]))"
)
_DIVISION = re.compile(r"\\div(?![A-Za-z])")
_RELATION = re.compile(r"\\([lg]e|ne)q?(?:slant|q)?(?![A-Za-z])")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?(?![A-Za-z])|\\textdegree(?![A-Za-z])")
_MODULO = re.compile(r"\\pmod\s*(?:\{([^{}]*)\}|([A-Za-z0-9]+))|\\bmod\b|\(\s*\\?mod\s+([^()]*)\)")


def normalise(text: str) -> str:
    """Return a text in the one notation of the table above. Time grows with its length only."""
    if not text.isascii():
        text = _from_unicode(text)
    if "\\" in text or "{,}" in text or "~" in text:
        text = _from_latex(text)
    return " ".join(text.split())


def _from_unicode(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    text = _SCRIPTS.sub(_script, text)
    text = _ROOT.sub(lambda root: f"{_ROOTS[root[1]]}{{{(root[2] or root[3]).strip('{}')}}}", text)
    return _UNICODE.sub(lambda character: _character(character.group()), text)


def _script(characters: re.Match[str]) -> str:
    plain = unicodedata.normalize("NFKC", characters.group()).replace("\u2212", "-")
    return f"{'^' if characters[1] else '_'}{{{plain}}}"


@cache
def _character(character: str) -> str:
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    if character.isspace():
        return " "
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    compatible = unicodedata.normalize("NFKC", character)
    if "\u2044" in compatible:  # ½ and its like
        above, _, below = compatible.partition("\u2044")
        return rf"\frac{{{above}}}{{{below}}}"
    name = unicodedata.name(compatible, "") if len(compatible) == 1 else ""
    greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", name)
    if greek:
        # Capitals that look Latin have no command; unknown commands are left to the parser.
        command = greek[2].lower().replace("lamda", "lambda")
        return rf"\{command if greek[1] == 'SMALL' else command.capitalize()} "
    return compatible if compatible.isascii() else character


def _from_latex(text: str) -> str:
    text = text.replace("{,}", ",").replace(r"\%", "%").replace(r"\lbrace", r"\{").replace(r"\rbrace", r"\}")
    text = _DIVISION.sub("/", text)
    text = _SPACE.sub(" ", _NOTHING.sub("", _GROUPS.sub(",", text)))
    text = _ALPHABET.sub(lambda letter: letter[1] or letter[2], text)
    text = _RELATION.sub(r"\\\1", text)
    text = _ABOVE.sub(lambda frac: rf"\frac{{{frac[1]}}}" if frac[1] else r"\frac", text)
    text = _UNDER_ROOT.sub(_root, _BELOW.sub(r"\1{\2}", text))
    text = _MODULO.sub(_modulo, _DEGREES.sub(r"^\\circ ", text))
    return _STYLED.sub(_styled, _NESTED.sub(r"\1\2", _STYLED.sub(_styled, text)))


def _root(command: re.Match[str]) -> str:
    return rf"\sqrt{command[1] or ''}{{{command[2]}}}"


def _styled(command: re.Match[str]) -> str:
    content = command[1]
    return rf"\text{{{content}}}" if _LETTER.search(content) else content


def _modulo(command: re.Match[str]) -> str:
    modulus = next((group for group in command.groups() if group), None)
    return rf"\pmod{{{modulus.strip()}}}" if modulus else r"\bmod "


def up_to_closing_brace(text: str) -> str:
    """Return the text up to the brace that closes an already opened one; empty if there is none."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    return ""
