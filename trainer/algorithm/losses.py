"""Policy-gradient losses of single tokens. Summing them up is the business of `aggregate`."""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""exp(20) = 4.9e8 is far outside of every clip range and far inside of what float32 holds."""


@dataclass(frozen=True)
class TokenLoss:
    """Loss of each token and what it was made of; every tensor is [B, T], and neutral on masked tokens.

    Attributes:
        loss: loss to minimise, with gradient; 0 on masked tokens.
        ratio: policy probability / behaviour probability, from the clamped log-ratio.
        log_ratio: raw log-ratio, before clamping, in nats.
        clipped: bool; True where the clip decided the loss and so took the gradient away.
    """

    loss: Tensor
    ratio: Tensor
    log_ratio: Tensor
    clipped: Tensor


def clipped_surrogate(
    policy_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """PPO's clipped surrogate (arXiv 1707.06347, equation 7) with the two bounds of DAPO (arXiv 2503.14476, eq. 8).

    loss = -min(w A, clip(w, 1 - clip_low, 1 + clip_high) A), w = exp(policy log-prob - behaviour log-prob).
    No dual clip: a negative advantage with a large ratio keeps its large loss. The log-ratio is clamped to ±20 before
    exp, so that no token overflows; a clamped token has no gradient.

    Args:
        policy_logprobs: [B, T] float, with gradient.
        behaviour_logprobs: [B, T] float, of the weights that sampled the tokens.
        advantages: float, [B, T] or broadcastable to it, such as [B, 1].
        mask: [B, T] bool; values of masked tokens, infinite and NaN ones too, reach neither loss nor gradient.
        clip_low: the ratio is clipped below at 1 - clip_low.
        clip_high: the ratio is clipped above at 1 + clip_high.
    """
    log_ratio = torch.where(mask, policy_logprobs - behaviour_logprobs, 0.0)
    advantages = torch.where(mask, advantages, 0.0)
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    gain = ratio * advantages
    clipped_gain = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return TokenLoss(
        loss=-torch.minimum(gain, clipped_gain),
        ratio=ratio.detach(),
        log_ratio=log_ratio.detach(),
        clipped=(clipped_gain < gain).detach(),
    )
