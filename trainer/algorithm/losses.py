"""Policy-gradient losses of single tokens. Summing them up is the business of `aggregate`.

All take policy_logprobs [B, T] (float, with gradient), old_logprobs [B, T] (of the policy that ratios are against),
advantages [B, T] and mask [B, T] (bool), and the settings. Values of masked tokens, infinite and NaN ones too, reach
neither loss nor gradient. With w = exp(policy log-prob - old log-prob), from a log-ratio clamped to ±20, so that no
token overflows; a token clamped there has no gradient through w.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Algorithm, LossName
from trainer.algorithm import ratios


@dataclass(frozen=True)
class TokenLoss:
    """Loss of each token and what it was made of; every tensor is [B, T], and neutral on masked tokens.

    Attributes:
        loss: loss to minimise, with gradient; 0 on masked tokens.
        ratio: policy / old probability, of the token or, for GSPO, of its sequence; from the clamped log-ratio.
        log_ratio: raw log-ratio of tokens, before clamping, in nats.
        clipped: bool; True where a bound decided the loss.
    """

    loss: Tensor
    ratio: Tensor
    log_ratio: Tensor
    clipped: Tensor


Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Algorithm], TokenLoss]


def clip(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """PPO's clipped surrogate (arXiv 1707.06347, equation 7) with the two bounds of DAPO (arXiv 2503.14476, eq. 8).

    loss = -min(w A, clip(w, 1 - clip_low, 1 + clip_high) A).

    With `dual_clip` c (arXiv 1912.09729, equation 5) the loss of a negative advantage is at most c |A|;
    without it, a negative advantage with a large ratio keeps its large loss.
    """
    log_ratio = ratios.log_ratio(policy_logprobs, old_logprobs, mask)
    return _clipped(ratios.exp(log_ratio), log_ratio, torch.where(mask, advantages, 0.0), settings)


def gspo(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """GSPO (arXiv 2507.18071, equations 5 and 7): the clip on the geometric mean s of a sequence's ratios.

    loss = -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A) for each token of the sequence, which must be whole. The
    paper's mean over sequences is that of sequence_mean_token_mean.
    """
    log_ratio = ratios.log_ratio(policy_logprobs, old_logprobs, mask)
    sequence = torch.where(mask, ratios.exp(ratios.sequence_mean(log_ratio, mask)), 1.0)
    return _clipped(sequence, log_ratio, torch.where(mask, advantages, 0.0), settings)


def _clipped(ratio: Tensor, log_ratio: Tensor, advantages: Tensor, settings: Algorithm) -> TokenLoss:
    gain = ratio * advantages
    clipped_gain = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high) * advantages
    loss = -torch.minimum(gain, clipped_gain)
    clipped = clipped_gain < gain
    if settings.dual_clip is not None:
        # The loss of a positive advantage is negative: the bound is there for negative ones only.
        bound = settings.dual_clip * advantages.abs()
        clipped = clipped | (bound < loss)
        loss = torch.minimum(loss, bound)
    return TokenLoss(loss, ratio.detach(), log_ratio.detach(), clipped)


def cispo(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """CISPO (MiniMax-M1, arXiv 2506.13585, equations 4 and 5): a clipped weight, and every token has a gradient.

    loss = -sg(clip(w, 1 - clip_low, 1 + clip_high)) A log π. The paper has no lower bound: clip_low 1.
    """
    log_ratio = ratios.log_ratio(policy_logprobs, old_logprobs, mask)
    ratio = ratios.exp(log_ratio.detach())
    weight = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    loss = -weight * torch.where(mask, advantages, 0.0) * torch.where(mask, policy_logprobs, 0.0)
    return TokenLoss(loss, ratio, log_ratio.detach(), weight != ratio)


def sapo(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """SAPO (arXiv 2511.20347): a gate that closes smoothly instead of a clip.

    loss = -4/τ σ(τ (w - 1)) A, with one temperature τ for positive advantages and one for the others. At w = 1 its
    gradient is that of -w A.
    """
    log_ratio = ratios.log_ratio(policy_logprobs, old_logprobs, mask)
    advantages = torch.where(mask, advantages, 0.0)
    ratio = ratios.exp(log_ratio)
    temperature = torch.where(advantages > 0, settings.sapo.temperature_positive, settings.sapo.temperature_negative)
    loss = -4 / temperature * torch.sigmoid(temperature * (ratio - 1)) * advantages
    return TokenLoss(loss, ratio.detach(), log_ratio.detach(), torch.zeros_like(mask))


def policy_gradient(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """REINFORCE (Williams, 1992): loss = -A log π, right for samples of the policy itself."""
    log_ratio = ratios.log_ratio(policy_logprobs, old_logprobs, mask).detach()
    loss = -torch.where(mask, advantages, 0.0) * torch.where(mask, policy_logprobs, 0.0)
    return TokenLoss(loss, ratios.exp(log_ratio), log_ratio, torch.zeros_like(mask))


def dppo(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """DPPO (arXiv 2602.04879, binary variants): a trust region on probabilities, which ratios of rare tokens mislead.

    loss = -m w A, where m is 0 for a token whose divergence from the old policy is above the threshold and whose update
    would take it further away (A > 0 and w > 1, or A < 0 and w < 1), else 1. Only the sampled token against all others
    is looked at: with p = π_old(token) and q = π(token), the total variation is |p - q|, the KL is
    p ln(p/q) + (1-p) ln((1-p)/(1-q)). The old policy is the one that sampled; the recipe takes no other. The ratio of a
    token with A < 0 that comes back is bounded by the clamp of all ratios at e^20 alone.
    """
    log_ratio = ratios.log_ratio(policy_logprobs, old_logprobs, mask)
    advantages = torch.where(mask, advantages, 0.0)
    ratio = ratios.exp(log_ratio)
    p, q = torch.where(mask, old_logprobs, 0.0).exp(), torch.where(mask, policy_logprobs, 0.0).exp().detach()
    if settings.dppo.divergence == "tv":
        divergence = (p - q).abs()
    else:
        tiny = torch.finfo(p.dtype).tiny
        divergence = -p * log_ratio.detach() + (1 - p) * ((1 - p).clamp(min=tiny) / (1 - q).clamp(min=tiny)).log()
    outwards = torch.where(advantages > 0, log_ratio > 0, log_ratio < 0) & (advantages != 0)
    blocked = outwards & (divergence > settings.dppo.threshold)
    return TokenLoss(torch.where(blocked, 0.0, -ratio * advantages), ratio.detach(), log_ratio.detach(), blocked)


def sft(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: Algorithm
) -> TokenLoss:
    """Fine-tuning, on one's own right answers with advantage `accepted` (RFT, arXiv 2308.01825): loss = -log π."""
    return policy_gradient(policy_logprobs, old_logprobs, torch.ones_like(policy_logprobs), mask, settings)


LOSSES: dict[LossName, Loss] = {
    "clip": clip,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "policy_gradient": policy_gradient,
    "dppo": dppo,
    "sft": sft,
}
