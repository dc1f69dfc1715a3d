"""Estimates of KL(policy || reference) from one sampled token each (J. Schulman, "Approximating KL Divergence", 2020).

All take policy_logprobs and reference_logprobs [B, T] (float, nats) and mask [B, T] (bool), and return [B, T], which is
0, without gradient, on masked tokens. With d = reference log-prob - policy log-prob: k1 = -d, k2 = d²/2,
k3 = exp(d) - d - 1.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from configs.algorithm import KlName
from trainer.algorithm.ratios import MAX_LOG_RATIO, exp, log_ratio

Estimator = Callable[[Tensor, Tensor, Tensor], Tensor]


def k1(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    """-d: unbiased, of high variance, negative for half of the tokens. Its own gradient has mean 0."""
    return -log_ratio(reference_logprobs, policy_logprobs, mask)


def k2(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    """d²/2: biased, of low variance; its gradient is an unbiased one of the KL."""
    return log_ratio(reference_logprobs, policy_logprobs, mask).square() / 2


def k3(policy_logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor) -> Tensor:
    """exp(d) - d - 1: unbiased, never negative; the KL of GRPO (arXiv 2402.03300, equation 4).

    d is clamped above at 20 so that exp stays finite; a clamped token has no gradient.
    """
    difference = log_ratio(reference_logprobs, policy_logprobs, mask).clamp(max=MAX_LOG_RATIO)
    return difference.expm1() - difference


ESTIMATORS: dict[KlName, Estimator] = {"k1": k1, "k2": k2, "k3": k3}


def unbiased(
    estimator: KlName, policy_logprobs: Tensor, reference_logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor
) -> Tensor:
    """k1 or k3 times w = policy/behaviour probability (DeepSeek-V3.2, arXiv 2512.02556, equation 7).

    With gradients through both factors, the mean over samples of the behaviour policy is the KL and its gradient the
    gradient of the KL, while k3's own gradient is that of KL(reference || policy) on policy, and unbounded.

    The gradient of w k3 is -w d, and so is that of w (k1 - 1), where no exp(d) is clamped: k3 takes it from there. A
    token whose w is clamped has none.

    Args:
        estimator: `k1` or `k3`.
        policy_logprobs: [B, T], with gradient.
        reference_logprobs: [B, T].
        behaviour_logprobs: [B, T], of the policy that sampled.
        mask: [B, T] bool.
    """
    log_weight = log_ratio(policy_logprobs, behaviour_logprobs, mask)
    weight = exp(log_weight)
    of_k1 = k1(policy_logprobs, reference_logprobs, mask)
    if estimator == "k1":
        return weight * of_k1
    value = weight * ESTIMATORS[estimator](policy_logprobs, reference_logprobs, mask)
    slope = weight * (of_k1 - 1)
    slope = torch.where(log_weight.abs() > MAX_LOG_RATIO, slope.detach(), slope)
    return value.detach() + (slope - slope.detach())
