"""Estimates of KL(policy || reference) from one sampled token each (J. Schulman, "Approximating KL Divergence", 2020).

All take policy_logprobs and reference_logprobs [B, T] (float, nats) and mask [B, T] (bool), and return [B, T], which is
0, without gradient, on masked tokens. With d = reference log-prob - policy log-prob: k1 = -d, k2 = d²/2,
k3 = exp(d) - d - 1.
"""

import torch
from torch import Tensor

from trainer.algorithm.losses import MAX_LOG_RATIO


def k1(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    """-d: unbiased, of high variance, negative for half of the tokens."""
    return -_difference(policy_logprobs, reference_logprobs, mask)


def k2(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    """d²/2: biased, of low variance; its gradient is an unbiased one of the KL."""
    return _difference(policy_logprobs, reference_logprobs, mask).square() / 2


def k3(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    """exp(d) - d - 1: unbiased, never negative; the KL of GRPO (arXiv 2402.03300, equation 4).

    d is clamped above at 20 so that exp stays finite; a clamped token has no gradient.
    """
    difference = _difference(policy_logprobs, reference_logprobs, mask).clamp(max=MAX_LOG_RATIO)
    return difference.expm1() - difference


def _difference(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, reference_logprobs - policy_logprobs, 0.0)
