"""The reward of one response. Training and evaluation score with the same function."""

import logging
import re
from dataclasses import dataclass
from typing import Literal

from configs.reward import Reward
from tasks.dataset.question import Question
from tasks.reward.answers import find_answers
from tasks.reward.checkers import CHECKERS

Status = Literal["right", "wrong", "truncated", "unscorable", "error"]

_log = logging.getLogger(__name__)
_TAG = r"</?(?:think|answer)>"
_FORMAT = re.compile(
    rf"\s*<think>(?:(?!{_TAG}).)*</think>\s*<answer>(?!\s*</answer>)(?:(?!{_TAG}).)*</answer>\s*", re.DOTALL
)


@dataclass(frozen=True)
class Score:
    """A response's reward.

    `reward` is the weighted sum of the parts, or None where there is none: such a sample takes no part in means or
    updates. `parts` holds `answer` and `format`, each 0.0 or 1.0, before weighting; it is empty where `reward` is
    None. `status` tells why: `right` or `wrong`; `truncated` is cut before a right answer; `unscorable` is a question
    that can't be checked; `error` is a checker that failed (logged with the question's id).
    """

    reward: float | None
    parts: dict[str, float]
    status: Status


def score(text: str, question: Question, reward: Reward, finish_reason: str) -> Score:
    """Score one response; never raises, so that one bad sample leaves the rest of its batch unharmed.

    Args:
        text: The response alone, with its tags and without the end-of-sequence token; never the prompt.
        question: The question that it answers.
        reward: The recipe's checker and weights.
        finish_reason: The engine's; `length` is a response cut at the limit.
    """
    cut = finish_reason == "length"
    try:
        right = CHECKERS[reward.checker](find_answers(text, cut), question)
    except Exception:
        _log.exception("the checker %s failed on a response to question %s", reward.checker, question.id)
        return Score(None, {}, "error")
    if right is None:
        return Score(None, {}, "unscorable")
    parts = {"answer": float(right), "format": float(keeps_format(text))}
    total = reward.answer_weight * parts["answer"] + reward.format_weight * parts["format"]
    return Score(total, parts, "right" if right else "truncated" if cut else "wrong")


def keeps_format(text: str) -> bool:
    """Whether a response is one `<think>…</think>`, one `<answer>…</answer>` that isn't empty, and nothing else."""
    return _FORMAT.fullmatch(text) is not None
