"""Which samples go into which optimizer step of an update."""

import random
from collections.abc import Sequence


def minibatches(groups: Sequence[str], *, epochs: int, count: int, seed: int, version: int) -> list[list[int]]:
    """Indices of the samples of each optimizer step, in order: `count` minibatches an epoch, for all epochs.

    Each epoch shuffles the groups again. A group stays whole, because a part of it would have a biased baseline. Seed
    and version decide the order, so a repeated update is the same.

    Args:
        groups: each sample's group.
        epochs: passes over the samples.
        count: minibatches of an epoch; fewer if there are fewer groups.
        seed: the run's.
        version: updates done.
    """
    order = sorted(set(groups))
    chance = random.Random(f"minibatches {seed} {version}")
    steps = []
    for _ in range(epochs):
        chance.shuffle(order)
        for first in range(min(count, len(order))):
            own = set(order[first::count])
            steps.append([index for index, group in enumerate(groups) if group in own])
    return steps
