"""Gradients of one optimizer batch, summed up over micro-batches and ranks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Algorithm
from trainer import distributed
from trainer.algorithm.aggregate import Normaliser
from trainer.algorithm.batch import AdvantageEstimate, Batch
from trainer.algorithm.critic import value_objective
from trainer.algorithm.objective import Inputs, Objective, policy_objective
from trainer.batches.micro_batches import collate_rows, part_of
from trainer.batches.packing import PromptResponse
from trainer.model.critic import Critic
from trainer.model.policy import Policy


@dataclass(frozen=True)
class Experience:
    """What is known of a step's N samples before its first optimizer step. It does not change afterwards.

    Attributes:
        sequences: prompts and responses.
        behaviour_logprobs: [N, T] float32.
        batch: rewards, and log-probs and values by the learner.
        estimate: what the samples are worth.
    """

    sequences: Sequence[PromptResponse]
    behaviour_logprobs: Tensor
    batch: Batch
    estimate: AdvantageEstimate


def accumulate(objectives: Iterable[Objective], device: str) -> tuple[dict[str, float], dict[str, float]]:
    """Add the gradient of the optimizer batch's loss to the `.grad` of the weights.

    Args:
        objectives: of this rank's micro-batches, computed one at a time; at least one, and equally many on each rank.
        device: the ranks communicate on it.

    Returns:
        The means and the maxima over the whole optimizer batch.
    """
    means: list[dict[str, Tensor]] = []
    maxima: list[dict[str, Tensor]] = []
    for objective in objectives:
        # FSDP averages gradients over the ranks, but the loss needs their sum.
        (objective.loss * distributed.world_size()).backward()
        means.append(objective.means)
        maxima.append(objective.maxima)
    sums = {name: torch.stack([part[name] for part in means]).sum().item() for name in means[0]}
    largest = {name: torch.stack([part[name] for part in maxima]).max().item() for name in maxima[0]}
    return distributed.reduce(sums, device), distributed.reduce(largest, device, largest=True)


def policy_objectives(
    policy: Policy,
    experience: Experience,
    micro_batches: Sequence[Sequence[int]],
    normaliser: Normaliser,
    algorithm: Algorithm,
    device: str,
) -> Iterator[Objective]:
    """The policy's objective on each micro-batch.

    Args:
        policy: what is trained.
        experience: of the whole step.
        micro_batches: this rank's, as rows of the experience.
        normaliser: counts of the whole optimizer batch, over all ranks, of the tokens that `corrections.counted` tells.
        algorithm: the recipe's.
        device: that of the policy.
    """
    batch, estimate = experience.batch, experience.estimate
    for rows in micro_batches:
        tokens = collate_rows(experience.sequences, rows, device)
        logprobs, entropy = policy(tokens)
        reference = batch.reference_logprobs
        inputs = Inputs(
            policy_logprobs=logprobs,
            behaviour_logprobs=part_of(experience.behaviour_logprobs, rows, tokens),
            old_logprobs=part_of(batch.old_logprobs, rows, tokens),
            entropy=entropy,
            advantages=part_of(estimate.advantages, rows, tokens),
            mask=part_of(estimate.mask, rows, tokens),
            reference_logprobs=None if reference is None else part_of(reference, rows, tokens),
            rejected=None if estimate.rejected is None else part_of(estimate.rejected, rows, tokens),
        )
        yield policy_objective(inputs, normaliser, algorithm)


def critic_objectives(
    critic: Critic,
    experience: Experience,
    micro_batches: Sequence[Sequence[int]],
    normaliser: Normaliser,
    value_clip: float | None,
    device: str,
) -> Iterator[Objective]:
    """The critic's objective on each micro-batch; see `policy_objectives` and `value_objective`."""
    batch, estimate = experience.batch, experience.estimate
    assert batch.values is not None and estimate.returns is not None
    for rows in micro_batches:
        tokens = collate_rows(experience.sequences, rows, device)
        yield value_objective(
            critic(tokens),
            part_of(batch.values, rows, tokens),
            part_of(estimate.returns, rows, tokens),
            part_of(estimate.mask, rows, tokens),
            normaliser,
            value_clip,
        )
