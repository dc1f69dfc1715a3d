"""Supervised fine-tuning on demonstrations: the cold start before reinforcement learning."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch.nn.utils import clip_grad_norm_

from configs.data import ColdStart
from trainer import policy
from trainer.algorithm.aggregate import token_mean
from trainer.batches import collate

WARMUP_SHARE = 0.05
MAX_GRAD_NORM = 1.0

Demonstration = tuple[list[int], list[int]]
"""(prompt_ids, response_ids); the response ends with the end token."""


def fit(
    policy_dir: Path,
    out_dir: Path,
    demonstrations: Sequence[Demonstration],
    settings: ColdStart,
    seed: int,
    threads: int | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> dict[str, float]:
    """Train the policy to imitate demonstrations, and save it as a Hugging Face folder, at once.

    The loss is the cross-entropy of response tokens, averaged over a batch's response tokens; prompts are not trained.
    AdamW without weight decay; the learning rate warms up over the first twentieth of the steps and falls to 0 along a
    cosine. With equal arguments the result is bit-equal on a CPU.

    Args:
        policy_dir: Hugging Face folder to start from.
        out_dir: folder to write; replaced if it exists.
        demonstrations: what to imitate; each is seen once before any is seen again.
        settings: steps, batch size and peak learning rate.
        seed: of the order of demonstrations.
        threads: OpenMP threads; None leaves them as they are.
        on_step: called after each step with its number, from 1, and its loss.

    Returns:
        `loss`: that of the last step, nats a token; `tokens`: response tokens trained on, over all steps.

    Raises:
        ValueError: if there are no demonstrations.
    """
    if not demonstrations:
        raise ValueError("the cold start got no demonstrations")
    if threads is not None:
        torch.set_num_threads(threads)
    trained = policy.load(policy_dir, temperature=1.0, dtype="float32")
    optimizer = torch.optim.AdamW(trained.parameters(), weight_decay=0.0)
    loss_value, tokens_seen = 0.0, 0
    order = _shuffled_for_ever(len(demonstrations), seed)
    for step in range(1, settings.steps + 1):
        tokens = collate([demonstrations[index] for index in islice(order, settings.batch_size)])
        token_count = int(tokens.response_mask.sum())
        logprobs, _ = trained(tokens)
        loss = token_mean(-logprobs, tokens.response_mask, token_count)
        loss.backward()
        clip_grad_norm_(trained.parameters(), MAX_GRAD_NORM)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * _schedule(step, settings.steps)
        optimizer.step()
        optimizer.zero_grad()
        loss_value = loss.item()
        tokens_seen += token_count
        if on_step:
            on_step(step, loss_value)
    policy.save(trained, policy_dir, out_dir)
    return {"loss": loss_value, "tokens": float(tokens_seen)}


def _schedule(step: int, steps: int) -> float:
    """Share of the peak learning rate at a step from 1 to `steps`: linear warm-up, then a cosine down to 0."""
    warmup = max(1, round(WARMUP_SHARE * steps))
    if step <= warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def _shuffled_for_ever(count: int, seed: int) -> Iterator[int]:
    """Indices below `count` in an endless chain of seeded permutations."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=generator).tolist()
