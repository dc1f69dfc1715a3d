"""Questions that are there twice: the same text, or nearly."""

import re
from collections.abc import Iterable, Sequence
from typing import cast

from datasketch import MinHash, MinHashLSH

from tasks.records.question import Finding, Question

_SHINGLE = 3
_PERMUTATIONS = 128


def drop_repeated(questions: Iterable[Question], wanted: int | None = None) -> tuple[list[Question], list[Finding]]:
    """Take the first `wanted` different questions (none takes all): (questions, those passed over as repeated).

    Questions are the same whose texts are, apart from case and spaces, after the same earlier messages.
    """
    first: dict[str, Question] = {}
    dropped = []
    for question in questions:
        if len(first) == wanted:
            break
        twin = first.setdefault(key(question), question)
        if twin is not question:
            dropped.append(Finding.of(question, "repeated", f"as {twin.id}: {question.text}"))
    return list(first.values()), dropped


def drop_near_repeated(questions: Sequence[Question], threshold: float) -> tuple[list[Question], list[Finding]]:
    """Drop questions that are nearly an earlier one: (questions, those dropped).

    Nearly the same are questions whose sets of word triples have a Jaccard similarity of at least `threshold` in
    (0, 0.95]; a text of fewer words is one shingle. MinHash (Broder 1997) with locality-sensitive hashing, 128
    permutations from a fixed seed, finds the candidates and may miss a pair near the threshold; a candidate's
    similarity is then computed exactly, so that no other question is dropped.
    """
    index, empty = MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS), MinHash(num_perm=_PERMUTATIONS)
    kept: list[tuple[Question, frozenset[str]]] = []
    dropped = []
    for question in questions:
        shingles = _shingles(question.text)
        sketch = empty.copy()
        sketch.update_batch([shingle.encode() for shingle in shingles])
        candidates = sorted(cast(list[int], index.query(sketch)))
        similar = (kept[i] for i in candidates if _jaccard(kept[i][1], shingles) >= threshold)
        twin, _ = next(similar, (None, None))
        if twin:
            dropped.append(Finding.of(question, "nearly repeated", f"as {twin.id}: {question.text}"))
        else:
            index.insert(len(kept), sketch)
            kept.append((question, shingles))
    return [question for question, _ in kept], dropped


def normalise(text: str) -> str:
    """Drop case, and every space that doesn't part two words: `What is  2+2 ?` becomes `what is 2+2?`."""
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(text.casefold().split()))


def words(text: str) -> list[str]:
    """Return the words and numbers of a text without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


def ngrams(found: Sequence[str], size: int) -> list[str]:
    """Return the runs of `size` of these words, each as text; none where there are fewer."""
    return [" ".join(found[start : start + size]) for start in range(len(found) - size + 1)]


def key(question: Question) -> str:
    """Return what two questions have in common that are the same question."""
    return question.earlier + normalise(question.text)


def _shingles(text: str) -> frozenset[str]:
    return frozenset(ngrams(words(text), _SHINGLE)) or frozenset([normalise(text)])


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)
