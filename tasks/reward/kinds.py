"""The function of each kind of part in the recipe."""

import importlib
from collections.abc import Callable
from typing import Any

from configs.reward import Part, Python
from tasks.reward import checkers, equality, shaping
from tasks.reward.outcome import Answered, Outcome

Function = Callable[[Any, Answered], float | None]


def _at_once(function: Function) -> Callable[[Any, Answered], Outcome | None]:
    return lambda part, answered: Outcome.of(function(part, answered))


AT_ONCE: dict[str, Callable[[Any, Answered], Outcome | None]] = {
    "math": checkers.math_at_once,
    "numeric": _at_once(checkers.numeric),
    "exact": _at_once(checkers.exact),
    "choice": _at_once(checkers.choice),
    "json": _at_once(checkers.json_value),
    "format": _at_once(shaping.keeps_format),
    "overlong": _at_once(shaping.overlong),
    "cosine": _at_once(shaping.cosine),
    "repetition": _at_once(shaping.repetition),
}
"""Functions whose time is bounded by the text's length. They run in the scorer's process; None means KILLABLE."""

KILLABLE: dict[str, Function] = {
    "math": checkers.math,
    "regex": checkers.regex,
    "reasoning_gym": checkers.reasoning_gym,
    "python": checkers.python,
}
"""Functions that may never return, crash or fill the memory. They run in processes that can be killed."""


def import_for(part: Part) -> None:
    """Import what a part of KILLABLE needs; fails if the user's function doesn't exist."""
    if isinstance(part, Python):
        checkers.load_function(part.function)
    elif part.kind == "math":
        equality.warm_up()
    elif part.kind == "reasoning_gym":
        importlib.import_module("reasoning_gym")
