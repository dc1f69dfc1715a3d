"""Training questions that give an evaluation question away, and prompts that give their own answer away."""

import re
from collections import Counter
from collections.abc import Sequence

from tasks.dataset.duplicates import key, ngrams, words
from tasks.records.question import Finding, Question

# Evaluation questions, of all, that may begin alike before it is taken for the wording of the set.
_COMMON_SHARE = 0.05

_SEPARATOR = re.compile(r"(?<=\d)(?:,|\{,\}|\\[,!;:]|[\u00a0\u2009\u202f ])(?=\d{3}(?!\d))")
_LABEL = r"(?:####|\\boxed\{|<answer>|\banswer\b(?: is)?\s*:?)\s*"
_TELLING_LENGTH = 4


def drop_contaminated(
    train: Sequence[Question], held_out: Sequence[Question], size: int | None
) -> tuple[list[Question], list[Finding]]:
    """Drop training questions that give an evaluation question away: (questions, dropped).

    That is the same question, apart from case and spaces, or one that shares a run of `size` words with it (none looks
    at whole questions only). Case, spaces and punctuation don't count in runs. Words with which more than one in twenty
    evaluation questions (and more than one) begin or end are the wording of the set, such as an instruction around each
    question, and are left out of runs. Questions of fewer words have no run and are compared whole only, where `2+3`
    and `2-3` are different.
    """
    same = {key(question): question for question in held_out}
    runs = _Runs(held_out, size) if size else None
    kept, dropped = [], []
    for question in train:
        twin = same.get(key(question))
        shared = runs.shared(question) if runs else None
        if twin:
            dropped.append(Finding.of(question, "in the evaluation set", f"as {twin.id}: {question.text}"))
        elif shared:
            dropped.append(Finding.of(question, "in the evaluation set", f"{shared}: {question.text}"))
        else:
            kept.append(question)
    return kept, dropped


class _Runs:
    """The runs of words of evaluation questions, without the wording that many have in common."""

    def __init__(self, held_out: Sequence[Question], size: int) -> None:
        self._size = size
        texts = [words(question.text) for question in held_out]
        most = max(1, int(_COMMON_SHARE * len(texts)))
        self._beginnings = _common_beginnings(texts, most)
        self._endings = _common_beginnings([text[::-1] for text in texts], most)
        self._asked = {run: question for question, text in zip(held_out, texts, strict=True) for run in self._of(text)}

    def shared(self, question: Question) -> str | None:
        """Return what the question shares with which one, in words; None where it shares nothing."""
        found = next((run for run in self._of(words(question.text)) if run in self._asked), None)
        return f"`{found}` is in {self._asked[found].id}" if found else None

    def _of(self, text: list[str]) -> list[str]:
        text = _without_beginning(text, self._beginnings)
        return ngrams(_without_beginning(text[::-1], self._endings)[::-1], self._size)


def _common_beginnings(texts: Sequence[list[str]], most: int) -> set[tuple[str, ...]]:
    """Return the beginnings, of one word or more, that more than `most` texts have."""
    common: set[tuple[str, ...]] = set()
    alive, length = list(texts), 1
    while alive:
        counts = Counter(tuple(text[:length]) for text in alive if len(text) >= length)
        longer = {beginning for beginning, count in counts.items() if count > most}
        alive = [text for text in alive if tuple(text[:length]) in longer]
        common |= longer
        length += 1
    return common


def _without_beginning(text: list[str], common: set[tuple[str, ...]]) -> list[str]:
    length = next((n for n in range(len(text)) if tuple(text[: n + 1]) not in common), len(text))
    return text[length:]


def gives_answer_away(question: Question) -> bool:
    r"""Whether the gold stands in the question's own text, where it is no accident.

    That is a gold of at least 4 characters, as whole words, or any gold after a label such as `####`, `\boxed{` or
    `answer:`. A short gold, such as 5, is in many questions by chance. Separators of thousands don't count, since a
    reader may have taken them out of the gold.
    """
    text = _without_separators(" ".join(message["content"] for message in question.messages))
    gold = re.escape(_without_separators(question.gold))
    if not gold:
        return False
    label = "" if len(question.gold) >= _TELLING_LENGTH else _LABEL
    return re.search(rf"(?<!\w){label}{gold}(?!\w)", text, re.IGNORECASE) is not None


def _without_separators(text: str) -> str:
    """Return a text with its numbers in plain digits: 15000 for 15,000 and 15{,}000."""
    return _SEPARATOR.sub("", text)
