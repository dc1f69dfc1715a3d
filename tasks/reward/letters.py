r"""The letter of a multiple choice: `C`, `(c)`, `C. Paris`, `B because it fits`, `\textbf{(B)}\ 12`, `Option D`."""

import re

from tasks.reward.notation import normalise

_WRAPPED = re.compile(r"\\text\{([^{}]*)\}|[$*`\"]|\\[()\[\]]")
# `A cat` and `I think` begin with a word. Behind the letter alone, in brackets or with a mark, anything may stand.
_BEGINS = re.compile(
    r"\(\s*([A-Za-z])\s*\)(?![A-Za-z])|([A-Za-z])\s*(?:$|[.):,;=/-]|\s(?=[^A-Za-z])|\s(?=(?:because|since|as|is|so|for|due)\b))"
    r"|([B-HJ-Z])\s(?=[A-Za-z][a-z])"
)
_NAMED = re.compile(r"(?i:\b(?:answer|option|choice)(?: is)?) ?:? ?(?:\(([A-Za-z])\)|([A-Z])(?![\w']))")
_BRACKETED = re.compile(r"\(([A-Z])\)")
_ENDS = re.compile(r"(?:[:\uff1a]|\b(?:is|be)\b|'s) ?\(?([A-Z])\)?\W*$")
_ALONE = re.compile(r"(?<![\w'])(?:[B-HJ-Z]|A(?! (?!(?:or|and)\b)[a-z]))(?![\w'])")
_ANOTHER = re.compile(r"[\s.):;]*(?:,|/|&|\bor\b|\band\b)\s*(?:(?i:option|choice)\s*)?\(?([A-Za-z])\)?(?![\w'])")


def letter_of(text: str) -> str | None:
    """Return the one letter that a text names, as a capital; None where it names none or two.

    It begins with the letter, or calls one the answer, option or choice, or has one in brackets, or ends with one.
    Where nothing else tells, it is the only letter that stands alone in the first clause.
    """
    plain = " ".join(_WRAPPED.sub(r" \1 ", normalise(text)).split())
    found = _BEGINS.match(plain) or next(reversed(list(_NAMED.finditer(plain))), None) or _ENDS.search(plain)
    if found:
        letter = next(group for group in found.groups() if group)
        another = _ANOTHER.match(plain[found.start() + found.group().index(letter) + 1 :])
        return None if another and another[1].upper() != letter.upper() else letter.upper()
    bracketed = set(_BRACKETED.findall(plain))
    alone = set(_ALONE.findall(re.split(r"[,.;]", plain, maxsplit=1)[0]))
    letters = bracketed or alone
    return letters.pop() if len(letters) == 1 else None
