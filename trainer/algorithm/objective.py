"""The objective of one micro-batch: surrogate loss, KL penalty, and what to report of them."""

from dataclasses import dataclass

from torch import Tensor

from configs.algorithm import Algorithm
from trainer.algorithm.aggregate import token_mean
from trainer.algorithm.kl import k3
from trainer.algorithm.losses import MAX_LOG_RATIO, clipped_surrogate


@dataclass(frozen=True)
class Objective:
    """Contribution of a micro-batch to the optimizer batch.

    Attributes:
        loss: scalar with gradient; contributions of micro-batches add up to the loss of the batch.
        means: detached scalars by name; contributions add up to the mean over the batch's trained tokens.
        maxima: detached scalars by name; the largest of all contributions is the maximum of the batch.
    """

    loss: Tensor
    means: dict[str, Tensor]
    maxima: dict[str, Tensor]


def grpo(
    policy_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    entropy: Tensor,
    advantages: Tensor,
    mask: Tensor,
    token_count: int,
    algorithm: Algorithm,
) -> Objective:
    """GRPO (arXiv 2402.03300, equation 3) with token-mean aggregation: clipped surrogate + β k3.

    Args:
        policy_logprobs: [B, T] float, with gradient.
        behaviour_logprobs: [B, T] float.
        reference_logprobs: [B, T] float, or None where no reference is kept: no KL is reported, and the KL
            coefficient must be 0.
        entropy: [B, T] float, nats; for the report only.
        advantages: [B] float.
        mask: [B, T] bool; the tokens to learn from.
        token_count: trained tokens of the whole optimizer batch.
        algorithm: clip range and KL coefficient.
    """
    surrogate = clipped_surrogate(
        policy_logprobs,
        behaviour_logprobs,
        advantages[:, None],
        mask,
        clip_low=algorithm.clip_low,
        clip_high=algorithm.clip_high,
    )
    gap = surrogate.log_ratio.abs()
    loss = surrogate.loss
    report = {
        "entropy": entropy.detach(),
        "ratio_mean": surrogate.ratio,
        "clip_share": surrogate.clipped.float(),
        "clamp_share": (gap > MAX_LOG_RATIO).float(),
        "logprob_gap_mean": gap,
    }
    if reference_logprobs is not None:
        kl = k3(policy_logprobs, reference_logprobs, mask)
        loss = loss + algorithm.kl_coefficient * kl
        report["kl"] = kl.detach()
    report["loss"] = loss.detach()
    return Objective(
        loss=token_mean(loss, mask, token_count),
        means={name: token_mean(values, mask, token_count) for name, values in report.items()},
        maxima={"logprob_gap_max": gap.max()},
    )
