"""Kinds of parts that look at a response's form and length, whatever its answer."""

import re
from math import cos, pi

from configs.reward import Cosine, Format, Overlong, Repetition
from tasks.reward.outcome import Answered

_TAG = r"</?(?:think|answer)>"
_FORMAT = re.compile(
    rf"\s*<think>(?:(?!{_TAG}).)*</think>\s*<answer>(?!\s*</answer>)(?:(?!{_TAG}).)*</answer>\s*", re.DOTALL
)


def keeps_format(_: Format, answered: Answered) -> bool:
    """Whether a response is one `<think>…</think>`, one `<answer>…</answer>` that isn't empty, and nothing else.

    The prompt may have opened the thought.
    """
    return _FORMAT.fullmatch(answered.said) is not None


def overlong(settings: Overlong, answered: Answered) -> float:
    """Soft overlong punishment (DAPO, arXiv 2503.14476, equation 13), in [-1, 0]; lengths are in tokens.

    0 up to max_tokens - buffer, from there falling evenly to -1 at max_tokens, -1 beyond.
    """
    over = answered.response_tokens - (settings.max_tokens - settings.buffer)
    return -min(1.0, max(0.0, over / settings.buffer))


def cosine(settings: Cosine, answered: Answered) -> float:
    """Cosine reward (Yeo et al., arXiv 2502.03373), in [-1, 1]; lengths are in tokens.

    A response of n < N tokens is worth long + (short - long) (1 + cos(pi n / N)) / 2, and one of N or more `exceeding`.
    Right answers have their own (short, long). So a shorter right answer may be worth more, and a longer wrong one too:
    thinking on is better than guessing.
    """
    if answered.response_tokens >= settings.max_tokens:
        return settings.exceeding
    short, long = settings.right if answered.accuracy == 1.0 else settings.wrong
    return long + (short - long) * (1 + cos(pi * answered.response_tokens / settings.max_tokens)) / 2


def repetition(settings: Repetition, answered: Answered) -> float:
    """Minus the share of repeated runs of `words` words in the response, in [-1, 0].

    1 - different runs / all runs, as in the repetition penalty of Yeo et al. (arXiv 2502.03373, appendix C.2), which
    counts tokens. Here spaces separate words, and case doesn't count.
    """
    words = answered.text.casefold().split()
    runs = list(zip(*(words[start:] for start in range(settings.words)), strict=False))
    return len(set(runs)) / len(runs) - 1.0 if runs else 0.0
