"""Advantages of whole samples: how much better one was than what to expect.

Each function takes the rewards [N] float64 (finite) and group ids [N] int64 of the samples that take part, and returns
advantages [N] float64. Members of a group need neither be neighbours nor of equal number. Standard deviations are the
unbiased ones (division by n - 1), here and in `token_advantages`. What is all equal, a group of one among them, gets
exactly 0: this is decided by max == min, since a mean of equal floats need not equal them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from configs.algorithm import AdvantageName

STD_EPSILON = 1e-6

Estimator = Callable[[Tensor, Tensor], Tensor]


def grpo(rewards: Tensor, groups: Tensor) -> Tensor:
    """GRPO (arXiv 2402.03300, section 4.1.2): A_i = (r_i - mean(r)) / (std(r) + 1e-6), over the group."""
    return _in_groups(rewards, groups, lambda r: (r - r.mean()) / (r.std() + STD_EPSILON))


def dr_grpo(rewards: Tensor, groups: Tensor) -> Tensor:
    """Dr. GRPO (arXiv 2503.20783, section 3.2): A_i = r_i - mean(r), over the group."""
    return _in_groups(rewards, groups, lambda r: r - r.mean())


def rloo(rewards: Tensor, groups: Tensor) -> Tensor:
    """RLOO (W. Kool et al., 2019; arXiv 2402.14740): A_i = r_i - mean of the group's others.

    That is n / (n - 1) times the distance from the mean of all.
    """
    return _in_groups(rewards, groups, lambda r: (r - r.mean()) * (len(r) / (len(r) - 1)))


def maxrl(rewards: Tensor, groups: Tensor) -> Tensor:
    """MaxRL (arXiv 2602.02710): A_i = (r_i - mean(r)) / mean(r), over the group.

    With rewards 0 and 1 the gradient is that of log-likelihoods of success, up to its n-th order.

    Raises:
        ValueError: if a reward is negative.
    """
    if bool((rewards < 0).any()):
        raise ValueError(
            f"maxrl divides by a group's mean reward, but a reward is {rewards.min().item():g}: give rewards from 0 up"
        )
    return _in_groups(rewards, groups, lambda r: (r - r.mean()) / r.mean())


def batch_normalised(rewards: Tensor, groups: Tensor) -> Tensor:
    """Over the whole batch, groups apart: A_i = (r_i - mean(r)) / (std(r) + 1e-6) (arXiv 2508.08221)."""
    return _in_groups(rewards, torch.zeros_like(groups), lambda r: (r - r.mean()) / (r.std() + STD_EPSILON))


def accepted(rewards: Tensor, groups: Tensor) -> Tensor:
    """1: rejection sampling (RAFT, arXiv 2304.06767); the others were masked out before."""
    return torch.ones_like(rewards)


def constant_groups(values: Tensor, groups: Tensor) -> Tensor:
    """[N] bool; True for members of a group whose values [N] are all equal."""
    return _in_groups(values, groups, torch.ones_like) == 0


def _in_groups(values: Tensor, groups: Tensor, formula: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a formula to each group's values, and give 0 where they are all equal."""
    result = torch.zeros_like(values)
    for group in groups.unique():
        members = groups == group
        of_group = values[members]
        if of_group.max() != of_group.min():
            result[members] = formula(of_group)
    return result


ESTIMATORS: dict[AdvantageName, Estimator] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "maxrl": maxrl,
    "batch_normalised": batch_normalised,
    "reinforce_pp_baseline": dr_grpo,  # normalised over the batch's tokens afterwards
    "accepted": accepted,
}
"""Advantages by name; the others are made of tokens (`token_advantages`)."""
