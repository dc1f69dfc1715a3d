"""From all samples of a step to the advantage of each token: whatever needs the whole batch is here."""

from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Algorithm
from trainer.algorithm import token_advantages
from trainer.algorithm.advantages import ESTIMATORS, constant_groups
from trainer.algorithm.filters import Selection, select
from trainer.algorithm.kl import ESTIMATORS as KL_ESTIMATORS

RIGHT = 0.5
"""An answer is right if its raw accuracy is above this."""


@dataclass(frozen=True)
class Batch:
    """N samples with responses of at most T tokens.

    Attributes:
        rewards: [N] float; NaN or infinite means not scored.
        accuracies: [N] float from 0 to 1, before weights and shaping; NaN means unknown, and the reward stands in.
        groups: [N] int64; samples of a prompt have the same id.
        truncated: [N] bool; cut at the token limit.
        lags: [N] int64; versions between the weights that sampled and the learner's.
        mask: [N, T] bool; tokens that the policy sampled; False on padding, and on what others, such as a tool, wrote.
        old_logprobs: [N, T] float; the learner's before the first epoch, or the behaviour log-probs if `old_policy`
            says so.
        reference_logprobs: [N, T] float; with a KL in the reward.
        teacher_logprobs: [N, T] float; with advantage `distillation`.
        values: [N, T] float; the critic's of the state before each token, with advantage `gae`.
    """

    rewards: Tensor
    accuracies: Tensor
    groups: Tensor
    truncated: Tensor
    lags: Tensor
    mask: Tensor
    old_logprobs: Tensor
    reference_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    values: Tensor | None = None


@dataclass(frozen=True)
class AdvantageEstimate:
    """What the samples are worth.

    Attributes:
        advantages: [N, T] float32; 0 outside of the mask, and where rejected.
        mask: [N, T] bool; the tokens to learn from, rejected ones among them.
        returns: [N, T] float32; the critic's targets, with advantage `gae`.
        metrics: numbers of the whole batch: `zero_variance_share` of the groups that take part, 0 to 1, left out where
            none does; samples that were filtered out, by reason; and the `rejected_share` of the mask's tokens, where
            that is known before the first step.
        rejected: [N, T] bool; what was rejected before the first step, within the mask.
    """

    advantages: Tensor
    mask: Tensor
    returns: Tensor | None
    metrics: dict[str, float]
    rejected: Tensor | None = None


def estimate_advantages(batch: Batch, algorithm: Algorithm, rejected: Tensor | None = None) -> AdvantageEstimate:
    """Filter, and estimate advantages.

    Args:
        batch: all samples of a step: groups must be whole.
        algorithm: the recipe's settings.
        rejected: [N, T] bool; what the correction rejects before the first step (`corrections.rejected_before`).

    Raises:
        ValueError: if log-probs or values that the algorithm needs are missing.
    """
    rewards = batch.rewards.double()
    correctness = torch.where(batch.accuracies.isnan(), rewards, batch.accuracies.double())
    sequences = rejected.any(dim=1) if rejected is not None and algorithm.correction.rejects_sequences else None
    selection = select(rewards, correctness, batch.groups, batch.truncated, batch.lags, algorithm.filters, sequences)
    if algorithm.advantage == "accepted":
        selection = _only_right(selection, correctness)
    takes_part = selection.takes_part
    # What was not scored is NaN, which the critic's gradient would feel behind a mask: 0 x NaN.
    rewards = torch.where(takes_part | selection.rejected, rewards, 0.0)
    mask = batch.mask & (selection.trained | selection.rejected)[:, None]
    rejected = None if rejected is None else rejected & mask
    learnt = mask if rejected is None else mask & ~rejected
    advantages, returns = _advantages(batch, rewards, takes_part, learnt, algorithm)
    metrics = {f"filtered_{reason}": count for reason, count in selection.counts.items()}
    if bool(takes_part.any()):
        metrics["zero_variance_share"] = _zero_variance_share(rewards[takes_part], batch.groups[takes_part])
    if rejected is not None:
        metrics["rejected_share"] = float(rejected.sum()) / max(int(mask.sum()), 1)
    return AdvantageEstimate(
        advantages=torch.where(learnt, advantages, 0.0).float(),
        mask=mask,
        returns=None if returns is None else returns.float(),
        metrics=metrics,
        rejected=rejected,
    )


def _advantages(
    batch: Batch, rewards: Tensor, takes_part: Tensor, mask: Tensor, algorithm: Algorithm
) -> tuple[Tensor, Tensor | None]:
    """Advantages [N, T], and returns [N, T] with a critic."""
    if algorithm.needs_teacher:
        teacher = _needed(batch.teacher_logprobs, "teacher_logprobs", "advantage distillation")
        return token_advantages.distillation(batch.old_logprobs.double(), teacher.double(), mask), None
    of_tokens = token_advantages.token_rewards(rewards, _kl(batch, algorithm), algorithm.kl.coefficient, batch.mask)
    if algorithm.advantage == "gae":
        values = _needed(batch.values, "values", "advantage gae").double()
        advantages, returns = token_advantages.gae(
            of_tokens, values, batch.mask, algorithm.gae.discount, algorithm.gae.smoothing
        )
        return token_advantages.normalised(advantages, mask), returns
    if algorithm.advantage == "reinforce_pp":
        return token_advantages.normalised(token_advantages.rewards_to_go(of_tokens), mask), None
    if algorithm.kl_in_reward:
        rewards = of_tokens.sum(dim=1)
    of_samples = torch.zeros_like(rewards)
    estimator = ESTIMATORS[algorithm.advantage]
    of_samples[takes_part] = estimator(rewards[takes_part], batch.groups[takes_part])
    advantages = of_samples[:, None].expand(mask.shape)
    if algorithm.advantage == "reinforce_pp_baseline":
        advantages = token_advantages.normalised(advantages, mask)
    return advantages, None


def _kl(batch: Batch, algorithm: Algorithm) -> Tensor:
    if not algorithm.kl_in_reward:
        return torch.zeros_like(batch.old_logprobs, dtype=torch.float64)
    reference = _needed(batch.reference_logprobs, "reference_logprobs", "a KL in the reward")
    estimator = KL_ESTIMATORS[algorithm.kl.estimator]
    return estimator(batch.old_logprobs.double(), reference.double(), batch.mask)


def _only_right(selection: Selection, correctness: Tensor) -> Selection:
    right = correctness > RIGHT
    counts = {**selection.counts, "wrong": float((selection.takes_part & ~right).sum())}
    return Selection(selection.takes_part & right, selection.trained & right, counts, selection.rejected & right)


def _zero_variance_share(rewards: Tensor, groups: Tensor) -> float:
    return len(groups[constant_groups(rewards, groups)].unique()) / len(groups.unique())


def _needed(values: Tensor | None, name: str, by: str) -> Tensor:
    if values is None:
        raise ValueError(f"{by} needs Batch.{name}, which is None")
    return values
