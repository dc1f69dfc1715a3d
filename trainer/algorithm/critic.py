"""The loss of PPO's critic."""

import torch
from torch import Tensor

from trainer.algorithm.aggregate import Normaliser, token_mean
from trainer.algorithm.objective import Objective


def value_objective(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    normaliser: Normaliser,
    value_clip: float | None,
) -> Objective:
    """Mean squared error of values, halved, clipped as PPO's authors do (OpenAI baselines, ppo2).

    loss = max((V - R)², (clip(V, V_old - c, V_old + c) - R)²) / 2: a value that moved further than c towards its target
    has no gradient. Token-mean.

    Args:
        values: [B, T] float, with gradient; the critic's estimate of the state before each token.
        old_values: [B, T] float; before the first epoch.
        returns: [B, T] float; the targets.
        mask: [B, T] bool; the tokens to learn from.
        normaliser: counts of the whole optimizer batch.
        value_clip: c, in units of the reward; None clips nothing.
    """
    error = (values - returns).square()
    clipped = torch.zeros_like(mask)
    if value_clip is not None:
        held = (torch.clamp(values, old_values - value_clip, old_values + value_clip) - returns).square()
        clipped, error = held > error, torch.maximum(error, held)
    loss = token_mean(error / 2, mask, normaliser)
    report = {"value": values.detach(), "return": returns, "value_clip_share": clipped.float()}
    means = {name: token_mean(numbers, mask, normaliser) for name, numbers in report.items()}
    return Objective(loss, means | {"value_loss": loss.detach()}, {})
