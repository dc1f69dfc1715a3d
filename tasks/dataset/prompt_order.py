"""Which prompts belong to which step: pure functions of the recipe and of steps that are committed."""

from collections.abc import Sequence

import numpy as np

from tasks.dataset.curriculum import weigh
from tasks.records.question import Prompt
from tasks.run.directory import Run
from tasks.run.ledger import order_seed
from trainer.files import read_json


def prompts_of_step(seed: int, step: int, prompts: int, prompts_per_step: int) -> list[int]:
    """Return the indices, in [0, prompts), of the prompts of a step; a pure function, so a resumed run needs no state.

    Every epoch is a fresh permutation drawn from (seed, epoch), cut into whole steps. No prompt comes twice within an
    epoch; the `prompts % prompts_per_step` last ones of an epoch's permutation are left out of that epoch, which keeps
    a step from crossing epochs and having one prompt twice.

    Args:
        seed: That of the order, not negative.
        step: Counts from 0.
        prompts: Prompts in the training set.
        prompts_per_step: Groups a step, at most `prompts`.

    Raises:
        ValueError: fewer prompts than a step needs.
    """
    if not 0 < prompts_per_step <= prompts:
        raise ValueError(f"a step of {prompts_per_step} prompts can't be drawn from {prompts}")
    epoch, position = divmod(step, prompts // prompts_per_step)
    permutation = np.random.default_rng([seed, epoch]).permutation(prompts)
    return permutation[position * prompts_per_step : (position + 1) * prompts_per_step].tolist()


def weighted_prompts_of_step(
    seed: int, step: int, weights: Sequence[float], prompts_per_step: int, skip: int = 0
) -> list[int]:
    """Return the indices of the different prompts of a step, drawn in proportion to their weights.

    A pure function of its arguments: with the pass rates of the ledger a resumed run draws the same prompts. Drawing
    without replacement by the keys log(u) / w, u uniform: Efraimidis and Spirakis (2006), algorithm A, in logarithms.

    Args:
        seed: That of the order, not negative.
        step: Counts from 0.
        weights: One a prompt, positive.
        prompts_per_step: Groups a step.
        skip: Prompts that were drawn for the step before; with `prompts_per_step` at most as many as there are.

    Raises:
        ValueError: fewer prompts than a step needs.
    """
    if not 0 < prompts_per_step <= len(weights) - skip:
        raise ValueError(f"a step of {prompts_per_step} prompts can't be drawn from {len(weights) - skip}")
    uniform = np.random.default_rng([seed, step]).random(len(weights))
    # 1 - u is never 0.
    keys = np.log1p(-uniform) / np.asarray(weights)
    return np.argsort(-keys, kind="stable")[skip : skip + prompts_per_step].tolist()


def prompts_of_round(run: Run, step: int, turn: int, prompts: Sequence[Prompt]) -> list[tuple[int, Prompt]]:
    """Return the prompts of a step's rollout round, each with the number of its group in the step.

    `data.seed` alone decides the order, so runs that differ in `seed` see the same prompts.

    Args:
        run: The run.
        step: Counts from 1.
        turn: The round, from 0; there are more with dynamic sampling. It takes what a step after the run's last would;
            with a curriculum, what comes next in the step's own draw, until that has not enough left.
        prompts: The training prompts.
    """
    size, curriculum, seed = run.recipe.rollout.groups_begun, run.recipe.data.curriculum, order_seed(run)
    if curriculum:
        again, position = divmod(turn, len(prompts) // size)
        known = read_pass_rates(run, step - 2 - run.recipe.pipeline.max_staleness)
        weights = weigh([prompt.question.id for prompt in prompts], known, curriculum)
        place = step - 1 + again * run.recipe.steps
        chosen = weighted_prompts_of_step(seed, place, weights, size, skip=position * size)
    else:
        place = step - 1 + turn * run.recipe.steps
        chosen = prompts_of_step(seed, place, len(prompts), size)
    return [(turn * size + position, prompts[index]) for position, index in enumerate(chosen)]


def read_pass_rates(run: Run, step: int) -> dict[str, float]:
    """Return the pass rates by prompt id as a step's samples left them.

    A rollout uses those of the step before the one whose weights it samples from, which is committed by then.
    """
    return read_json(run.pass_rates(step)) if step > 0 else {}
