"""Questions from reasoning-gym: procedural tasks, each with a verifier of its own (arXiv 2505.24760)."""

import dataclasses
import json
from collections.abc import Iterator
from decimal import localcontext
from difflib import get_close_matches
from typing import Any

from reasoning_gym.factory import DATASETS, create_dataset

from configs.errors import UserError
from tasks.records.question import Question


def generate_questions(
    task: str, settings: dict[str, Any], seed: int, size: int, name: str | None = None
) -> Iterator[Question]:
    """Generate the task's questions number 0 to size - 1; the same seed gives the same ones.

    `name` is the source's own name in the recipe, if it has one.

    The whole entry is kept as metadata, for the task's verifier. The gold is empty where the task states no answer.

    Raises:
        UserError: unknown task (names the nearest ones), or settings that the task refuses.
    """
    if task not in DATASETS:
        near = get_close_matches(task, DATASETS, n=3) or sorted(DATASETS)
        raise UserError(f"data.source: reasoning_gym has no task {task!r}; nearest: {', '.join(near)}")
    try:
        dataset = create_dataset(task, seed=seed, size=size, **settings)
    except (TypeError, ValueError, AssertionError) as error:
        known = ", ".join(f.name for f in dataclasses.fields(DATASETS[task][1]) if f.name not in ("seed", "size"))
        raise UserError(f"data.settings: {task} refuses them: {error}. It knows {known}") from error
    for index in range(size):
        with localcontext():  # Some tasks set the precision of all decimals of the process.
            entry = dataset[index]
        yield Question(
            id=f"{name or task}/{seed}/{index}",
            text=entry["question"],
            gold=entry["answer"] or "",
            source=name or f"reasoning_gym:{task}",
            metadata=json.dumps(entry),
        )
