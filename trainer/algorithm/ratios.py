"""Log-ratios of probabilities and what is made of them."""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""exp(20) = 4.9e8 is far outside of every clip range and far inside of what float32 holds."""


def log_ratio(numerator_logprobs: Tensor, denominator_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Difference of log-probs, [B, T] in nats; 0, without gradient, where mask [B, T] is False."""
    return torch.where(mask, numerator_logprobs - denominator_logprobs, 0.0)


def exp(log_ratios: Tensor) -> Tensor:
    """exp of log-ratios of any shape, clamped to ±20 so that none overflows; a clamped one has no gradient."""
    return log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_sum(log_ratios: Tensor) -> Tensor:
    """Log-ratio of whole sequences: [B, T], 0 on masked tokens, to [B, 1]."""
    return log_ratios.sum(dim=1, keepdim=True)


def sequence_mean(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """Log of the geometric mean of a sequence's ratios: [B, T], 0 on masked tokens, to [B, 1]."""
    return sequence_sum(log_ratios) / mask.sum(dim=1, keepdim=True).clamp(min=1)
