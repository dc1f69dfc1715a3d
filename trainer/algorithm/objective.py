"""The objective of one micro-batch: loss, correction, KL penalty, and what to report of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Algorithm
from trainer.algorithm import ratios
from trainer.algorithm.aggregate import AGGREGATIONS, Normaliser, token_mean
from trainer.algorithm.corrections import Weights, correct, counted
from trainer.algorithm.kl import ESTIMATORS, unbiased
from trainer.algorithm.losses import LOSSES


@dataclass(frozen=True)
class Inputs:
    """Whole sequences of a micro-batch; every tensor is [B, T].

    Attributes:
        policy_logprobs: float, with gradient.
        behaviour_logprobs: float; the engine's at sampling time.
        old_logprobs: float; the learner's before the first epoch, or the behaviour log-probs if `old_policy` says so.
        entropy: float, nats; for the report only.
        advantages: float.
        mask: bool; the tokens to learn from.
        reference_logprobs: float; None where there is no reference, and no KL is reported.
        rejected: bool; what the correction rejected before the first step, if it had to be known then.
    """

    policy_logprobs: Tensor
    behaviour_logprobs: Tensor
    old_logprobs: Tensor
    entropy: Tensor
    advantages: Tensor
    mask: Tensor
    reference_logprobs: Tensor | None = None
    rejected: Tensor | None = None


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


def policy_objective(inputs: Inputs, normaliser: Normaliser, algorithm: Algorithm) -> Objective:
    """Aggregate of importance weight x loss + coefficient x KL.

    Args:
        inputs: the micro-batch.
        normaliser: counts of the whole optimizer batch, of the tokens that `corrections.counted` tells.
        algorithm: the recipe's settings.
    """
    mask, policy = inputs.mask, inputs.policy_logprobs
    token = LOSSES[algorithm.loss](policy, inputs.old_logprobs, inputs.advantages, mask, algorithm)
    weights = _weights(inputs, algorithm)
    rejected = weights.rejected if inputs.rejected is None else weights.rejected | inputs.rejected
    used = torch.where(rejected, 0.0, weights.used)
    loss = torch.where(rejected, 0.0, token.loss * used)
    gap = token.log_ratio.abs()
    report = {
        "entropy": inputs.entropy.detach(),
        "ratio_mean": token.ratio,
        "clip_share": token.clipped.float(),
        "clamp_share": (gap > ratios.MAX_LOG_RATIO).float(),
        "logprob_gap_mean": gap,
        "importance_mean": weights.raw,
        "importance_square_mean": weights.raw.square(),
        "importance_used_mean": used,
        "importance_used_square_mean": used.square(),
        "importance_truncated_share": weights.truncated.float(),
        "importance_rejected_share": rejected.float(),
    }
    if inputs.reference_logprobs is not None:
        kl = ESTIMATORS[algorithm.kl.estimator](policy, inputs.reference_logprobs, mask)
        report["kl"] = kl.detach()
        if algorithm.kl_in_loss:
            if algorithm.kl.unbiased_gradient:
                estimator, reference = algorithm.kl.estimator, inputs.reference_logprobs
                kl = unbiased(estimator, policy, reference, inputs.behaviour_logprobs, mask)
            loss = loss + algorithm.kl.coefficient * kl
    mean_over = counted(mask, inputs.rejected, algorithm.correction)
    total = AGGREGATIONS[algorithm.aggregation](loss, mean_over, normaliser)
    means = {name: token_mean(values, mean_over, normaliser) for name, values in report.items()}
    return Objective(
        loss=total,
        means=means | {"loss": total.detach()},
        maxima={
            "logprob_gap_max": _largest(gap, mask),
            "importance_max": _largest(weights.raw, mask),
            "importance_used_max": _largest(used, mask),
        },
    )


def metrics(means: Mapping[str, float], maxima: Mapping[str, float]) -> dict[str, float]:
    """Metrics of an optimizer batch from the sums of `means` and the largest of `maxima` over its micro-batches.

    The squares, which were there because they add up, become effective sample sizes as a share of the tokens, 0 to 1:
    mean(w)² / mean(w²) (L. Kish, 1965), 0 where nothing is left.
    """
    result = {**means, **maxima}
    for name in ("importance", "importance_used"):
        square = result.pop(f"{name}_square_mean")
        result[f"{name}_ess"] = result[f"{name}_mean"] ** 2 / square if square > 0 else 0.0
    return result


def _weights(inputs: Inputs, algorithm: Algorithm) -> Weights:
    policy = inputs.policy_logprobs.detach()
    # Decoupled PPO (arXiv 2110.00641): the loss has policy/old, the weight has old/behaviour.
    learner = inputs.old_logprobs if algorithm.needs_old else policy
    return correct(
        ratios.log_ratio(learner, inputs.behaviour_logprobs, inputs.mask),
        ratios.log_ratio(inputs.behaviour_logprobs, policy, inputs.mask),
        inputs.advantages,
        inputs.mask,
        algorithm.correction,
    )


def _largest(values: Tensor, mask: Tensor) -> Tensor:
    """Largest of the trained tokens' values, none of which is negative; 0 without any."""
    return torch.cat([torch.where(mask, values, 0.0).flatten(), values.new_zeros(1)]).max()
