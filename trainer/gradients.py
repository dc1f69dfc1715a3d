"""Gradients of one optimizer batch, summed up over micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Algorithm
from trainer.algorithm.objective import grpo
from trainer.batches import Tokens, collate, pad
from trainer.policy import Policy
from trainer.samples import Sample

NOTHING = Sample(group="", prompt_ids=[0], response_ids=[0], behaviour_logprobs=[0.0], weights_version=0, reward=None)


@dataclass(frozen=True)
class MicroBatch:
    """Samples of one forward and backward pass.

    Attributes:
        tokens: the sequences.
        behaviour_logprobs: [B, T] float32.
        advantages: [B] float32.
        mask: [B, T] bool; response tokens of scored samples.
    """

    tokens: Tokens
    behaviour_logprobs: Tensor
    advantages: Tensor
    mask: Tensor


def micro_batch(samples: Sequence[Sample], advantages: Tensor, scored: Tensor, device: str) -> MicroBatch:
    """Tensors of B samples, with their advantages [B] float and whether they are scored [B] bool."""
    tokens = collate([(sample.prompt_ids, sample.response_ids) for sample in samples], device)
    return MicroBatch(
        tokens=tokens,
        behaviour_logprobs=pad([sample.behaviour_logprobs for sample in samples], torch.float32, device),
        advantages=advantages.to(device),
        mask=tokens.response_mask & scored.to(device)[:, None],
    )


def empty_micro_batch(device: str) -> MicroBatch:
    """A micro-batch without trained tokens: a rank with less work passes it so that all ranks meet as often."""
    return micro_batch([NOTHING], torch.zeros(1), torch.zeros(1, dtype=torch.bool), device)


def accumulate(
    policy: Policy,
    reference: Policy | None,
    micro_batches: Sequence[MicroBatch],
    algorithm: Algorithm,
    token_count: int,
    ranks: int = 1,
) -> tuple[dict[str, float], dict[str, float]]:
    """Add the gradient of the optimizer batch's loss to the policy's `.grad`.

    Args:
        policy: what is trained.
        reference: frozen policy for the KL, or None.
        micro_batches: this rank's share of the optimizer batch; at least one.
        algorithm: the objective's settings.
        token_count: trained tokens of the whole optimizer batch, over all ranks.
        ranks: number of ranks; FSDP averages gradients over them, where the loss asks for their sum.

    Returns:
        Means over the batch's trained tokens (this rank's contributions, which add up over ranks), and maxima.
    """
    means: list[dict[str, Tensor]] = []
    maxima: list[dict[str, Tensor]] = []
    for batch in micro_batches:
        logprobs, entropy = policy(batch.tokens)
        reference_logprobs = None
        if reference is not None:
            with torch.no_grad():
                reference_logprobs, _ = reference(batch.tokens)
        objective = grpo(
            logprobs,
            batch.behaviour_logprobs,
            reference_logprobs,
            entropy,
            batch.advantages,
            batch.mask,
            token_count,
            algorithm,
        )
        (objective.loss * ranks).backward()
        means.append(objective.means)
        maxima.append(objective.maxima)
    return (
        {name: torch.stack([part[name] for part in means]).sum().item() for name in means[0]},
        {name: torch.stack([part[name] for part in maxima]).max().item() for name in maxima[0]},
    )
