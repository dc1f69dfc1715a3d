r"""Which part of a response is its answer.

The conventions, in this order:

1. Thinking doesn't count: only what follows the last `</think>` does. A thinking part that is never closed leaves no
   answer. A `</think>` without an opening is fine (the opening may end the prompt), and so is a response without both.
2. The content of the last `<answer>…</answer>`, else of the last `\boxed{…}`, just as it stands: a list of guesses in
   it is no number. If the last one is empty or not closed there is no answer, whatever came before.
3. With nothing enclosed: the rest of the line after the last `####`, else after the last `Answer:`, else the whole
   text. Two readings count: the text (or the last mathematics in it: `$…$`, `\(…\)` or `\[…\]`), and the last number in
   it. A number that ends a list is a guess, not an answer. So is a number that is part of LaTeX: the 2 of
   `\frac{1}{2}`.
4. A response that was cut at the length limit has an answer by rule 2 only: its end is missing.
"""

import re

from tasks.reward.numbers import last_number

_LABELS = (re.compile(r"####[ \t]*(.*)"), re.compile(r"(?i:\banswer(?: is)?)\s*:\s*(.*)"))
_DELIMITERS = (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_WORDS = re.compile(r"\\(?:text|textbf|mathrm)\{[^{}]*\}")
_COMMAND = re.compile(r"\\[A-Za-z]")
_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}[ ,]+[A-Za-z]{2,}|(?<!\\)\b(?:and|or)\b")
# Not the powers in `2**3 + 3**2`.
_BOLD = re.compile(r"(?<![\w)*])\*\*([^*\n]+)\*\*(?!\w)")


def final_part(response: str) -> str | None:
    """Return what follows the thinking; None where the thinking isn't closed."""
    *_, final = response.rpartition("</think>")
    return None if "<think>" in final else final


def find_answers(response: str, cut: bool = False) -> list[str]:
    """Return the readings of the response's one answer, by the conventions above; empty where it gives none.

    Args:
        response: The response alone, without its prompt.
        cut: It ended at the length limit.
    """
    final = final_part(response)
    if final is None:
        return []
    enclosed = _last_enclosed(final)
    if enclosed is not None:
        return [enclosed] if enclosed else []
    if cut:
        return []
    line = _after_label(_BOLD.sub(r"\1", final)).strip()
    expression = _last_mathematics(line) or line
    number = None if _COMMAND.search(_WORDS.sub(" ", expression)) else last_number(line)
    return [reading for reading in (expression, number) if reading]


def is_prose(text: str) -> bool:
    """Whether a text is a sentence rather than an expression."""
    return _PROSE.search(_WORDS.sub(" ", text)) is not None


def _last_mathematics(line: str) -> str | None:
    """Return what stands between the last delimiters of mathematics; `$5 and $6` are prices, not mathematics."""
    spans = []
    for opening, closing in _DELIMITERS:
        end = line.rfind(closing)
        start = line.rfind(opening, 0, max(end, 0))
        if start >= 0 and (opening != closing or line.count(opening) % 2 == 0):
            spans.append((end, line[start + len(opening) : end].strip()))
    _, last = max(spans, default=(0, ""))
    return last if last and not is_prose(last) else None


def _last_enclosed(text: str) -> str | None:
    """Return the content of the last tags or box: empty where that isn't closed, None where there is neither."""
    content = None
    if "<answer>" in text:
        content, closing, _ = text.rpartition("<answer>")[2].partition("</answer>")
        text = content = content.strip() if closing else ""
    if r"\boxed{" in text:
        content = up_to_closing_brace(text.rpartition(r"\boxed{")[2]).strip()
    return content


def up_to_closing_brace(text: str) -> str:
    """Return the text up to the brace that closes an already opened one; empty if there is none."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    return ""


def _after_label(text: str) -> str:
    for label in _LABELS:
        if lines := label.findall(text):
            return lines[-1]
    return text
