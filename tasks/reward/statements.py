r"""What a statement says: `so 9 \times 2 = 18 dollars.` says `9 \times 2 = 18 dollars`.

An expression is what stands between words. So a statement is split into words, the formulas between `$…$` and the like,
and what is left. A number is taken whole, with the words behind it that are its unit.

| statement | says |
|---|---|
| `The point is (1,2) as we saw` | `(1,2)` |
| `5, because 2+3=5` | `5`, if asked what it begins with |
| `1 or 2 or 3`, `3 and 4`, `5 apples or 6 apples` | a list: `1, 2, 3`; so no number |
| `2 days and 3 nights` | what comes last: `3 nights` |
| `The total is **123**. We used 2 steps.` | the number that is printed bold |
| `5 times 3 equals 15` | `5 \times 3 = 15` |
| `Evelyn` | `Evelyn`: without an expression the text itself |
"""

import re
from collections.abc import Collection, Iterator, Sequence

from tasks.reward.notation import normalise
from tasks.reward.numbers import to_quantity
from tasks.reward.units import as_unit

LONGEST = 2000
"""Characters of a text's end in which a statement is looked for."""

BOLD = re.compile(r"(?<![\d)*])(\*\*\*?|__)(?=[^\s*])([^*\n]+?)\1(?!\d)")
"""Bold text in Markdown; not the powers in `2**3 + 3**2`."""

_SENTENCES = re.compile(r"\n|(?<=[A-Za-z\d)$][.!?])\s+(?=[A-Z])")
_SENTENCE_END = re.compile(r"\.\s+(?=[A-Z*])|\.?\s*$")
# `$5 and` begins a price, not a formula.
_MATHEMATICS = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\s*\d[\d.,]*\s+[A-Za-z])([^$]+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_ARROW = re.compile(r"(?:=+>|-+>|\\(?:Longr|longr|R|r)ightarrow|\\implies|\\therefore|\\to|\\approx)(?![A-Za-z])\s*")
_NAMES = "sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|cbrt|pi|mod|abs|infinity"
# Scripts that put no space between a word and a number.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0600-\u06ff"
_WORD = re.compile(
    rf"""\\text\{{([^{{}}]*)\}}
       | ([{_UNSPACED}]+)
       | (?<![\\\w{{])(?!(?:{_NAMES})\b)([^\W\d_]{{2,}}\w*(?:['/-][^\W\d_]+)*(?:\^\{{?-?\d\}}?)?)
       | (?<![\\\w^({{+*/=-])\b([aAI])\b(?=\s+\w)""",
    re.VERBOSE,
)
_LEAD = {
    *("approximately", "about", "roughly", "around", "exactly", "simply", "just", "only", "thus", "so"),
    *("equal", "equals", "to", "is", "be", "the", "a"),
}
_JOIN = {"and", "or", "and/or"}
_EXPLAIN = {"because", "since", "as", "so", "which", "due", "hence", "therefore"}
_SAYS = {"is", "are", "was", "were", "be", "equals", "has", "have"}
_BEFORE, _BEHIND = r"(?<=[\w)}]) ", r" (?=[-+\d(\\$])"
_SPOKEN = tuple(
    (re.compile(_BEFORE + words + _BEHIND), sign)
    for words, sign in (
        ("(?:times|multiplied by)", r" \\times "),
        ("plus", " + "),
        ("minus", " - "),
        ("divided by", " / "),
        ("equals", " = "),
    )
)


def last_expression(text: str) -> str:
    """Return what a text without marks says: its last bold number, else the last expression of its last sentence."""
    text = text[-LONGEST:]
    for bold in reversed(list(BOLD.finditer(text))):
        alone = (bold.start() > 0 and text[bold.start() - 1] != "\n") or text[bold.end() :].strip(" ")[:1] in ("", "\n")
        if alone and to_quantity(quantity := _bare(normalise(bold[2]))):
            return quantity
    sentences = _SENTENCES.split(_MATHEMATICS.sub(lambda formula: formula.group().replace("\n", " "), text))
    with_terms = [sentence for sentence in sentences if re.search(r"[\d\\=]", sentence)]
    return expression_of(with_terms[-1] if with_terms else text, begins=False)


def expression_of(place: str, begins: bool) -> str:
    """Return what a statement says: the expression that it begins with, if so asked, else its last one."""
    text = normalise(BOLD.sub(r"\2", place[-LONGEST:]))
    for spoken, sign in _SPOKEN:
        text = spoken.sub(sign, text)
    if begins and (end := _SENTENCE_END.search(text)):
        text = text[: end.start()] or text
    tokens = list(_tokens(text))
    places = [index for index, (kind, _) in enumerate(tokens) if kind == "expression"]
    if not places:
        return _bare(text) if re.search(r"\w", text) else ""
    lead = [word.casefold() for kind, word in tokens[: places[0]] if kind == "word"]
    if begins and all(word in _LEAD for word in lead):
        first = last = 0
        while last + 1 < len(places) and _joined(tokens[places[last] + 1 : places[last + 1]], _JOIN):
            last += 1
    else:
        first = last = len(places) - 1
        # `2 days and 3 nights` are two things; `2 days or 3 days` are two guesses.
        while first > 0 and _joined(tokens[places[first - 1] + 1 : places[first]], {"or"}):
            first -= 1
    if first < last:
        return ", ".join(tokens[index][1] for index in places[first : last + 1])
    return tokens[places[last]][1] + _unit(tokens[places[last] + 1 :])


def whole_expression(text: str) -> str:
    """Return what a text says that should be an answer and nothing else, such as a gold: all of it, but no sentence."""
    expression = _bare(normalise(text))
    words = [word.casefold() for kind, word in _tokens(expression) if kind == "word"]
    if _EXPLAIN.intersection(words) or _SAYS.intersection(words):
        return expression_of(expression, begins=not _SAYS.intersection(words))
    return expression


def _joined(between: Sequence[tuple[str, str]], behind_units: Collection[str]) -> bool:
    """Tell whether two expressions are members of one list: `1 or 2`, `3 and 4`, `1 apple or 2`.

    `behind_units`: the words that join where the first member has a unit.
    """
    *unit, last = [word.casefold() for kind, word in between if kind == "word"] or [""]
    return last in behind_units and as_unit(" " + " ".join(unit)) is not None if unit else last in _JOIN


def _unit(tokens: Sequence[tuple[str, str]]) -> str:
    words: list[str] = []
    for kind, word in tokens:
        if kind != "word" or word.casefold() in _EXPLAIN:
            break
        words.append(word)
    for count in range(len(words), 0, -1):
        text = rf" \text{{{' '.join(words[:count]).replace('{', '').replace('}', '')}}}"
        if to_quantity(f"1{text}"):  # a unit, a percentage, or `million`
            return text
    return ""


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Split a text, in one notation, into words, expressions and stops: what is between words is an expression."""
    pending = ""
    place = 0
    for mathematics in (*_MATHEMATICS.finditer(text), None):
        before = text[place : mathematics.start()] if mathematics else text[place:]
        start = 0
        for word in (*_WORD.finditer(before), None):
            pending += before[start : word.start()] if word else before[start:]
            if word:
                yield from _gap(pending)
                pending = ""
                yield from (
                    ("word", each)
                    for each in next(group for group in (*word.groups(), "") if group is not None).split()
                )
                start = word.end()
        if mathematics:
            place = mathematics.end()
            pending += f" {next(group for group in mathematics.groups() if group)} "
    yield from _gap(pending)


def _gap(text: str) -> Iterator[tuple[str, str]]:
    expression = " ".join(_trim(text).split())
    if re.search(r"\w", expression):
        yield ("expression", expression)
    elif text.strip():
        yield ("stop", text)


def _trim(text: str) -> str:
    """Return an expression without the punctuation of the sentence around it."""
    before = None
    while text != before:
        before = text
        text = _ARROW.sub("", text.strip(" .,;:?!\"'`*~"), count=1) if _ARROW.match(text.strip()) else text
        text = text.strip(" ,;:?!\"'`*=~").removeprefix("- ")
        text = text if text.endswith("..") else text.removesuffix(".")
        text = text if re.match(r"\.\d", text) else text.removeprefix(".")
        if text.endswith(("(", "[")) or (text.endswith(")") and text.count(")") > text.count("(") + text.count("[")):
            text = text[:-1]
        opened = text.count("(") + text.count("["), text.count(")") + text.count("]")
        if text.startswith((")", "]")) or (text.startswith(("(", "[")) and opened[0] > opened[1]):
            text = text[1:]
    return text


def _bare(text: str) -> str:
    r"""Return a text without what only surrounds it: delimiters, `\text{…}`, bold, quotes, a full stop."""
    before = None
    while text != before:
        before = text
        text = text.strip().removesuffix(".").removesuffix("\\").strip(' "`')
        for opening, closing in (
            ("$$", "$$"),
            ("$", "$"),
            (r"\(", r"\)"),
            (r"\[", r"\]"),
            ("**", "**"),
            (r"\text{", "}"),
        ):
            inner = text.removeprefix(opening).removesuffix(closing)
            alone = len(inner) == len(text) - len(opening) - len(closing)
            if alone and opening not in inner and closing not in inner:
                text = inner
    return text
