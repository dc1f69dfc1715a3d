r"""Units: which words behind a number are one, and which two mean the same.

Any words are a unit: `18 dollars`, `18 people`, `5 square feet per hour`, and so is the base of `120_{5}`. Without a
space or `\text{…}` before it only a well-known one is, so that `5cm` has one and `5x` and `2ab` have none. A letter
alone is a unit in `\text{…}`, and behind a space if it is a usual one: `5 m`. `5m` may be a product.
"""

import re
from functools import lru_cache

_SAME = (
    "mm millimeter millimetre", "cm centimeter centimetre", "m meter metre", "km kilometer kilometre",
    "in inch inches", "ft foot feet", "yd yard", "mi mile", "g gram gramme", "mg milligram",
    "kg kilogram kilogramme kilo", "gal gallon", "qt quart", "pt pint",
    "lb lbs pound", "oz ounce", "l liter litre", "ml milliliter millilitre", "s sec second", "ms millisecond",
    "min minute", "h hr hour", "day", "wk week", "yr year", "mo month", "mph", "kmh kph", "n newton", "j joule",
    "w watt", "kw kilowatt", "v volt", "a ampere amp", "hz hertz", "pa pascal", "k kelvin", "c celsius", "f fahrenheit",
    "ha hectare", "deg degree", "rad radian", "dollar usd buck", "cent", "euro eur", "unit", "mol mole",
)  # fmt: skip
_SPELLING = {word: words.split()[0] for words in _SAME for word in words.split()}
_KNOWN = {word for words in _SAME for word in words.split() if len(word) > 1} | {"kmh", "sq", "cu", "deg"}

# They join or compare; a text that has one says more than a number and its unit.
_NO_UNIT = frozenset(
    word
    for words in (
        "a an and or nor not no to than of by mod if when unless where with without plus minus times over divided",
        "equals is are was be more less else then but so because since in for at from on into until after before",
        "between either neither pi sqrt sin cos tan cot sec csc log ln exp lim max gcd lcm infinity infty",
        "hundred thousand million billion trillion it we you they he she there here this that was",
    )
    for word in words.split()
) - {"sec"}
_FILLERS = {"of", "per", "a", "an", "each", "in", "total", "all", "about", "the"}

_WORD = r"[^\W\d_]+\.?(?:\^ ?\{?-?\d\}?)?"
_WORDS = re.compile(rf"{_WORD}(?:(?: ?/ ?| ?\\cdot ?| ?\* ?| - |-| ){_WORD})*")
_LETTERS = frozenset("mgshLNJWVK")
_BASE = re.compile(r" ?_ ?(?:\{ ?([0-9]+) ?\}|([0-9]))")
_DEGREES = re.compile(r"\s*\^\\circ\s*([CF]?)\s*")


def as_unit(text: str) -> str | None:
    """Return the unit that follows a number, in one spelling: empty for nothing, None for what is no unit.

    Args:
        text: What follows the number, in the notation of `notation.normalise`, with the space before it.
    """
    if not text:
        return ""
    return _as_unit(text) if len(text) <= 100 else None


@lru_cache(4096)
def _as_unit(text: str) -> str | None:
    if degrees := _DEGREES.fullmatch(text):
        return f"deg{degrees[1].lower()}"
    if base := _BASE.fullmatch(text):
        return f"base{base[1] or base[2]}"
    plain = re.sub(r"\\text ?\{([^{}]*)\}", r"\1", text).replace("(", " ").replace(")", " ")
    plain = " ".join(plain.strip(" .,").split())
    if not plain:
        return ""
    if not _WORDS.fullmatch(plain):
        return None
    words = re.findall(r"[^\W\d_]+|\^ ?\{?-?\d\}?|/", plain.casefold())
    letters = [word for word in words if word.isalpha()]
    wrapped = r"\text" in text
    if not wrapped and not _reads_as_unit(plain.split()[0], apart=text[0] == " "):
        return None
    if wrapped and letters == ["in"]:
        return "in"
    if letters[0] in _FILLERS:
        return None
    if any(word in _NO_UNIT and word not in _FILLERS for word in letters):
        return None
    return _canonical(words)


def _reads_as_unit(text: str, apart: bool) -> bool:
    """Tell whether what stands behind a number without `\\text{…}` is a word, not a variable or a product of some."""
    word = re.match(r"[^\W\d_]+", text)
    name = word.group() if word else ""
    if len(name) == 1 and name.isascii():
        return (apart and name in _LETTERS) or text.startswith("m^")
    return name.casefold() in _KNOWN or not name.isascii() or (apart and len(name) > 2)


def same_unit(left: str, right: str) -> bool:
    """Tell whether two units may be the same: one says nothing, or they share a word; powers count."""
    if not left or not right or left == right:
        return True
    common = set(left.split()) & set(right.split())
    return bool(common) and ("^" in left) == ("^" in right)


def _canonical(words: list[str]) -> str:
    """Spell each word in one way: `square feet` is `ft ^2`, and so are `sq ft` and `ft^2`."""
    spelt: list[str] = []
    power = ""
    for word in words:
        if word in ("square", "squared", "sq"):
            power = "^2"
        elif word in ("cubic", "cubed", "cu"):
            power = "^3"
        elif word.startswith("^"):
            power = f"^{re.sub(r'[^0-9-]', '', word)}"
        elif word not in _FILLERS and word != "/":
            spelt.append(_spelling(word))
    return " ".join(spelt + ([power] if power else []))


def _spelling(word: str) -> str:
    """Return a word as its table spells it, else in the singular."""
    if word in _SPELLING:
        return _SPELLING[word]
    singular = re.sub(r"(?:(s|x|z|ch|sh)es|(?<!s)s)$", r"\1", word) if len(word) > 2 else word
    return _SPELLING.get(singular, singular)
