"""Advantages: how much better a sample was than what to expect of its prompt."""

from dataclasses import dataclass

import torch
from torch import Tensor

STD_EPSILON = 1e-6


@dataclass(frozen=True)
class Advantages:
    """Result of an advantage estimator over N samples.

    Attributes:
        values: [N] float32; 0 where a sample is not scored.
        scored: [N] bool; False for samples without a finite reward, which must be masked out of the loss.
        zero_variance_share: share of the scored groups whose rewards are all equal, 0 to 1.
    """

    values: Tensor
    scored: Tensor
    zero_variance_share: float


def group_relative(rewards: Tensor, groups: Tensor, *, std_normalised: bool = True) -> Advantages:
    """Rewards relative to those of the same prompt.

    GRPO (arXiv 2402.03300, section 4.1.2): A_i = (r_i - mean(r)) / (std(r) + 1e-6), with the unbiased standard
    deviation (division by n - 1). With `std_normalised=False` only the mean is taken off: Dr. GRPO (arXiv 2503.20783,
    section 3.2).

    A group whose scored rewards are all equal, a group of one among them, gets exactly 0. This is decided by
    max == min, since a mean of equal floats need not equal them.

    Args:
        rewards: [N] float; NaN (or infinite) means not scored, and leaves mean and deviation of the group alone.
        groups: [N] integer ids; members of a group need neither be neighbours nor of equal number.
        std_normalised: divide by the group's standard deviation.

    Returns:
        Advantages of the N samples, in their order.
    """
    rewards = rewards.double()
    scored = rewards.isfinite()
    values = torch.zeros_like(rewards)
    zero_variance = []
    for group in groups[scored].unique():
        members = scored & (groups == group)
        of_group = rewards[members]
        zero_variance.append(bool(of_group.max() == of_group.min()))
        if not zero_variance[-1]:
            centred = of_group - of_group.mean()
            values[members] = centred / (of_group.std() + STD_EPSILON) if std_normalised else centred
    share = sum(zero_variance) / len(zero_variance) if zero_variance else 0.0
    return Advantages(values.float(), scored, share)
