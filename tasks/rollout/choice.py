"""Which prompts a step samples: a pure function of the recipe and of steps that are committed."""

from collections.abc import Sequence

from tasks.dataset.curriculum import weigh
from tasks.dataset.order import prompts_of_step, weighted_prompts_of_step
from tasks.dataset.store import Prompt
from tasks.runtime.files import read_json
from tasks.runtime.ledger import Run

PASS_RATES = "pass_rates.json"


def choose(run: Run, step: int, turn: int, prompts: Sequence[Prompt]) -> list[tuple[int, Prompt]]:
    """Return the prompts of a step's rollout round, each with the number of its group in the step.

    Args:
        run: The run.
        step: Counts from 1.
        turn: The round, from 0; there are more with dynamic sampling. It takes what a step after the run's last would;
            with a curriculum, what comes next in the step's own draw, until that has not enough left.
        prompts: The training prompts.
    """
    size, curriculum = run.recipe.rollout.groups_begun, run.recipe.data.curriculum
    if curriculum:
        again, position = divmod(turn, len(prompts) // size)
        known = pass_rates(run, step - 2 - run.recipe.pipeline.max_staleness)
        weights = weigh([prompt.question.id for prompt in prompts], known, curriculum)
        place = step - 1 + again * run.recipe.steps
        chosen = weighted_prompts_of_step(run.recipe.seed, place, weights, size, skip=position * size)
    else:
        place = step - 1 + turn * run.recipe.steps
        chosen = prompts_of_step(run.recipe.seed, place, len(prompts), size)
    return [(turn * size + position, prompts[index]) for position, index in enumerate(chosen)]


def pass_rates(run: Run, step: int) -> dict[str, float]:
    """Return the pass rates by prompt id as a step's samples left them.

    A rollout uses those of the step before the one whose weights it samples from, which is committed by then.
    """
    return read_json(run.step_file(step, PASS_RATES)) if step > 0 else {}
