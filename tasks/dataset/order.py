"""Which prompts belong to which step."""

import numpy as np


def prompts_of_step(seed: int, step: int, prompts: int, prompts_per_step: int) -> list[int]:
    """Return the indices, in [0, prompts), of the prompts of a step; a pure function, so a resumed run needs no state.

    Every epoch is a fresh permutation drawn from (seed, epoch), cut into whole steps. No prompt comes twice within an
    epoch; the `prompts % prompts_per_step` last ones of an epoch's permutation are left out of that epoch, which keeps
    a step from crossing epochs and having one prompt twice.

    Args:
        seed: The run's seed, not negative.
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
