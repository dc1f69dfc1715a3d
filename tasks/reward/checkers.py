"""Whether an answer is right.

A checker takes the readings of a response's one answer (see `answers.find_answers`) and the question. It returns
whether one of them is right, or None where the question itself can't be checked, whatever the answer.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tasks.dataset.question import Question
from tasks.reward.numbers import to_number

Checker = Callable[[Sequence[str], Question], bool | None]


def exact(answers: Sequence[str], question: Question) -> bool | None:
    """Right is the same text as the gold, apart from case, runs of spaces and a full stop at the end."""
    gold = _normalise(question.gold)
    return gold in map(_normalise, answers) if gold else None


def numeric(answers: Sequence[str], question: Question) -> bool | None:
    """Right is a number of exactly the gold's value, however it is written: 72, 72.0, +72, 072, 144/2.

    A question whose gold isn't one number can't be checked.
    """
    gold = to_number(question.gold)
    return gold in map(to_number, answers) if gold is not None else None


def reasoning_gym(answers: Sequence[str], question: Question) -> bool:
    """Right is what the task's own verifier gives full marks, 1.0.

    Its partial marks don't count: many verifiers give some to any text that contains the gold, or to any text at all,
    and a policy would learn to collect those. The verifiers want the bare answer, which here is the enclosed text or,
    with nothing enclosed, the whole text or its last number.
    """
    verify = _verifier(question.source.removeprefix("reasoning_gym:"))
    entry = json.loads(question.metadata)
    return any(verify(answer=answer, entry=entry) >= 1.0 for answer in answers)


@cache
def _verifier(task: str) -> Callable[..., float]:
    # Importing its hundred tasks takes a second that other checkers needn't pay.
    from reasoning_gym import get_score_answer_fn

    verifier: Any = get_score_answer_fn(task)
    return verifier


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".")


CHECKERS: dict[str, Checker] = {"exact": exact, "numeric": numeric, "reasoning_gym": reasoning_gym}
