"""What is done about samples of another policy than the learner's: a stale one, or the same in the engine's arithmetic.

Everything here is without gradient. log_ratios are log(learner's / behaviour probability) [B, T], 0 on masked tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Correction, RejectionName
from trainer.algorithm import ratios


@dataclass(frozen=True)
class Weights:
    """Importance weights of tokens, [B, T], 1 on masked tokens.

    Attributes:
        raw: before anything was done.
        used: what the loss of a token is multiplied by; 0 for rejected tokens.
        truncated: bool; a bound of the weight was reached.
        rejected: bool; masked out of the loss.
    """

    raw: Tensor
    used: Tensor
    truncated: Tensor
    rejected: Tensor


def correct(log_ratios: Tensor, gaps: Tensor, advantages: Tensor, mask: Tensor, settings: Correction) -> Weights:
    """Weigh, truncate and reject, as the settings say.

    Args:
        log_ratios: [B, T] log(learner's / behaviour probability), 0 on masked tokens.
        gaps: [B, T] log(behaviour / policy probability), the current policy's, 0 on masked tokens.
        advantages: [B, T].
        mask: [B, T] bool.
        settings: kinds and ranges.
    """
    raw = token_weights(log_ratios, mask)
    if settings.weight == "sequence" or (settings.weight == "none" and settings.reject == "sequence"):
        raw = sequence_weights(log_ratios, mask)
    low, high = settings.weight_range
    weight = raw.clamp(low, high) if settings.weight != "none" else torch.ones_like(raw)
    rejected = REJECTIONS[settings.reject](log_ratios, mask, settings.reject_range)
    if settings.off_policy_limit is not None:
        rejected = rejected | off_policy(gaps, advantages, mask, settings.off_policy_limit)
    truncated = (weight != raw) if settings.weight != "none" else torch.zeros_like(mask)
    return Weights(raw, torch.where(rejected, 0.0, weight), truncated & mask, rejected & mask)


def rejected_before(learner_logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, settings: Correction) -> Tensor:
    """What is rejected before the first optimizer step: [N, T] bool, False outside of the mask.

    A rejected sequence leaves the baseline of its group, which is taken then; and a mean over what is kept divides by
    a number of the whole optimizer batch. What goes out of the range later, as the policy moves, is masked when it does
    (`correct`), and goes on counting.

    Args:
        learner_logprobs: [N, T] the learner's, before its first step.
        behaviour_logprobs: [N, T] the engine's.
        mask: [N, T] bool; the tokens that the policy sampled.
        settings: kind and range.
    """
    log_ratios = ratios.log_ratio(learner_logprobs, behaviour_logprobs, mask)
    return REJECTIONS[settings.reject](log_ratios, mask, settings.reject_range) & mask


def counted(mask: Tensor, rejected: Tensor | None, settings: Correction) -> Tensor:
    """The tokens that the loss's mean is over: [B, T] bool.

    By default rejected ones are among them, with loss 0: IcePop's objective (arXiv 2510.18855, section 2.3.2) divides
    by the lengths of the responses as they were sampled. `kept` leaves out what was rejected before the first step, as
    verl (#3915) and slime (#657) do for the methods of "When Speed Kills Stability".
    """
    return mask if rejected is None or settings.mean_over == "sampled" else mask & ~rejected


def token_weights(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """Each token's ratio (truncated: TIS of F. Yao et al., "Off-Policy RL Training", 2025). [B, T], 1 where masked."""
    return torch.where(mask, ratios.exp(log_ratios), 1.0)


def sequence_weights(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """The product of a sequence's ratios on each of its tokens: unbiased where token weights are not.

    Source: J. Liu, Y. Li et al., "When Speed Kills Stability", 2025; truncated, sequence-level TIS. [B, T], 1 where
    masked.
    """
    return torch.where(mask, ratios.exp(ratios.sequence_sum(log_ratios)), 1.0)


def reject_none(log_ratios: Tensor, mask: Tensor, allowed: tuple[float, float]) -> Tensor:
    """Keep all: [B, T] bool, False."""
    return torch.zeros_like(mask)


def reject_tokens(log_ratios: Tensor, mask: Tensor, allowed: tuple[float, float]) -> Tensor:
    """Tokens whose ratio is out of range: masked importance sampling (IcePop, arXiv 2510.18855, section 2.3.2).

    The range is closed. Returns [B, T] bool.
    """
    return _outside(log_ratios, allowed)


def reject_sequences(log_ratios: Tensor, mask: Tensor, allowed: tuple[float, float]) -> Tensor:
    """Sequences whose product of ratios is out of range ("When Speed Kills Stability"). Returns [B, T] bool."""
    return _outside(ratios.sequence_sum(log_ratios), allowed).expand_as(mask)


def reject_by_geometric_mean(log_ratios: Tensor, mask: Tensor, allowed: tuple[float, float]) -> Tensor:
    """Sequences whose geometric mean of ratios is out of range, whatever their length. Returns [B, T] bool.

    Source: Geo-RS of "When Speed Kills Stability", part 3; see also "Trust Region Masking", arXiv 2512.23075.
    """
    return _outside(ratios.sequence_mean(log_ratios, mask), allowed).expand_as(mask)


def off_policy(gaps: Tensor, advantages: Tensor, mask: Tensor, limit: float) -> Tensor:
    """Off-policy sequence masking (DeepSeek-V3.2, arXiv 2512.02556, equation 9).

    Tokens of negative advantage in sequences whose mean log(behaviour / policy probability) is above the limit: what
    the policy would not say any more is not worth unlearning. Returns [B, T] bool.
    """
    return (advantages < 0) & (ratios.sequence_mean(gaps, mask) > limit)


def _outside(log_ratios: Tensor, allowed: tuple[float, float]) -> Tensor:
    low, high = torch.tensor(allowed, dtype=log_ratios.dtype, device=log_ratios.device).log()
    # A NaN is in no range.
    return ~((log_ratios >= low) & (log_ratios <= high))


REJECTIONS: dict[RejectionName, Callable[[Tensor, Tensor, tuple[float, float]], Tensor]] = {
    "none": reject_none,
    "token": reject_tokens,
    "sequence": reject_sequences,
    "geometric": reject_by_geometric_mean,
}
