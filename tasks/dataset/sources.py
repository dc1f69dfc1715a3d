"""From the recipe's data section to training and evaluation questions."""

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from configs.data import Data
from configs.errors import UserError
from tasks.dataset import arithmetic, files
from tasks.dataset.question import Question

# Drawing from a small set of possible questions repeats them; this many draws for each one wanted find nearly all.
_DRAWS_PER_QUESTION = 10


@dataclass(frozen=True)
class Questions:
    """Training and evaluation questions, and how many rows were left out for what."""

    train: list[Question]
    eval: list[Question]
    dropped: Counter[str]


def load(data: Data) -> Questions:
    """Load or generate `data.train_size` and `data.eval_size` questions, all different.

    A question that repeats an earlier one, apart from case and spaces, is dropped and counted: so none is seen twice
    in an epoch and no evaluation question is a training question. Evaluation questions are taken first: they stay
    the same when `train_size` changes. Generated questions come from one stream, since streams of neighbouring seeds
    may overlap (reasoning-gym derives the seed of an item as seed + index).

    Raises:
        UserError: the source can't be read, or it has fewer different questions than are asked for.
    """
    kind, _, task = data.source.partition(":")
    wanted = data.train_size + data.eval_size
    dropped: Counter[str] = Counter()
    if data.source == "arithmetic":
        found = arithmetic.questions(data.settings, data.seed)
    elif kind == "reasoning_gym":
        # Importing its hundred tasks takes a second that other sources needn't pay.
        from tasks.dataset import gym

        stream = gym.generate_questions(task, data.settings, data.seed, wanted * _DRAWS_PER_QUESTION)
        found, dropped = drop_repeated(stream, wanted)
    else:
        read, refused = files.read_questions(data)
        found, repeated = drop_repeated(read, len(read))
        dropped = refused + repeated
        random.Random(data.seed).shuffle(found)
    if len(found) < wanted:
        raise UserError(
            f"{data.source}: {len(found)} different questions, but data.train_size ({data.train_size}) + "
            f"data.eval_size ({data.eval_size}) need {wanted}. Lower them, or give a larger source"
        )
    return Questions(train=found[data.eval_size : wanted], eval=found[: data.eval_size], dropped=dropped)


def drop_repeated(questions: Iterable[Question], wanted: int) -> tuple[list[Question], Counter[str]]:
    """Take the first `wanted` different questions: (questions, count of repeated ones passed over)."""
    found: dict[str, Question] = {}
    dropped: Counter[str] = Counter()
    for question in questions:
        if len(found) == wanted:
            break
        key = normalise(question.text)
        if key in found:
            dropped["repeated"] += 1
        else:
            found[key] = question
    return list(found.values()), dropped


def normalise(text: str) -> str:
    """Drop case, and every space that doesn't part two words: `What is  2+2 ?` becomes `what is2+2?`..."""
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(text.casefold().split()))
