"""Supervised fine-tuning on demonstrations: the cold start before reinforcement learning."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch

from configs.data import ColdStart
from configs.learner import Optimizer as OptimizerSettings
from trainer.algorithm.aggregate import normaliser, token_mean
from trainer.batches.collation import collate
from trainer.learner.optimizer import Optimizer
from trainer.model import policy

WARMUP_SHARE = 0.05

Demonstration = tuple[list[int], list[int]]
"""(prompt_ids, response_ids); the response ends with the end token."""


def fit(
    policy_dir: Path,
    out_dir: Path,
    demonstrations: Sequence[Demonstration],
    settings: ColdStart,
    seed: int,
) -> dict[str, float]:
    """Train the policy to imitate demonstrations, and save it as a Hugging Face folder, atomically.

    The loss is the cross-entropy of response tokens, averaged over a batch's response tokens; prompts are not trained.
    AdamW without weight decay; the learning rate warms up over the first twentieth of the steps and falls to 0 along a
    cosine. With equal arguments the result is bit-equal on a CPU.

    Args:
        policy_dir: Hugging Face folder to start from.
        out_dir: folder to write; replaced if it exists.
        demonstrations: what to imitate; each is seen once before any is seen again.
        settings: steps, batch size and peak learning rate.
        seed: of the order of demonstrations.

    Returns:
        `loss`: that of the last step, nats a token; `tokens`: response tokens trained on, over all steps.

    Raises:
        ValueError: if there are no demonstrations.
        TrainingDiverged: if the loss or gradient was not finite for several steps in a row.
    """
    if not demonstrations:
        raise ValueError("the cold start got no demonstrations")
    trained = policy.load(policy_dir, temperature=1.0, dtype="float32")
    optimizer = Optimizer(trained, _optimizer_settings(settings), settings.steps)
    loss_value, tokens_seen = 0.0, 0
    order = _shuffled_for_ever(len(demonstrations), seed)
    for step in range(settings.steps):
        tokens = collate([demonstrations[index] for index in islice(order, settings.batch_size)])
        counts = normaliser(tokens.response_mask, tokens.response_mask.shape[1])
        logprobs, _ = trained(tokens)
        loss = token_mean(-logprobs, tokens.response_mask, counts)
        loss.backward()
        loss_value = loss.item()
        optimizer.step(step, loss_value)
        tokens_seen += counts.tokens
    policy.save(trained, policy_dir, out_dir)
    return {"loss": loss_value, "tokens": float(tokens_seen)}


def _optimizer_settings(settings: ColdStart) -> OptimizerSettings:
    return OptimizerSettings(
        learning_rate=settings.learning_rate,
        warmup_steps=max(1, round(WARMUP_SHARE * settings.steps)),
        schedule="cosine",
        betas=(0.9, 0.999),
    )


def _shuffled_for_ever(count: int, seed: int) -> Iterator[int]:
    """Indices below `count` in an endless chain of seeded permutations."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=generator).tolist()
