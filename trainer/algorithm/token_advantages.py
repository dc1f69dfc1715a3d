"""Advantages that differ from token to token.

mask [N, T] bool tells the tokens that the policy sampled; those of tools between them are stepped over. Everything is
float64 and 0 outside of the mask.
"""

import torch
from torch import Tensor

from trainer.algorithm.advantages import STD_EPSILON


def token_rewards(rewards: Tensor, kl: Tensor, coefficient: float, mask: Tensor) -> Tensor:
    """Reward of each token: -coefficient x KL, and the sample's reward at its last one (InstructGPT, arXiv 2203.02155).

    Args:
        rewards: [N].
        kl: [N, T] estimates of the old policy's KL, 0 outside of the mask.
        coefficient: weight of the KL.
        mask: [N, T] bool.
    """
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return -coefficient * kl + torch.where(last, rewards[:, None], 0.0)


def rewards_to_go(rewards: Tensor) -> Tensor:
    """Sum of each token's reward and all later ones, [N, T] (REINFORCE++, arXiv 2501.03262)."""
    return rewards.flip(1).cumsum(1).flip(1)


def gae(rewards: Tensor, values: Tensor, mask: Tensor, discount: float, smoothing: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv 1506.02438, equation 16; arXiv 1707.06347, equations 11 and 12).

    A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V_{t+1} - V_t. After the last token the value is 0, for responses that were
    cut as well: their reward is all that they get.

    Args:
        rewards: [N, T] of tokens.
        values: [N, T] the critic's estimate of the state before each token.
        mask: [N, T] bool.
        discount: γ.
        smoothing: λ.

    Returns:
        Advantages [N, T] and returns [N, T], the targets of the critic: advantage + value.
    """
    advantages = torch.zeros_like(rewards)
    next_value = next_advantage = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + discount * next_value - values[:, t]
        advantage = delta + discount * smoothing * next_advantage
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        next_advantage = torch.where(mask[:, t], advantage, next_advantage)
        advantages[:, t] = torch.where(mask[:, t], advantage, 0.0)
    return advantages, torch.where(mask, advantages + values, 0.0)


def normalised(advantages: Tensor, mask: Tensor) -> Tensor:
    """(A - mean) / (std + 1e-6) over all tokens of the batch in the mask (REINFORCE++, arXiv 2501.03262).

    All equal, or one token alone, gives exactly 0. [N, T] to [N, T].
    """
    inside = advantages[mask]
    if not len(inside) or inside.max() == inside.min():
        return torch.zeros_like(advantages)
    return torch.where(mask, (advantages - inside.mean()) / (inside.std() + STD_EPSILON), 0.0)


def distillation(old_logprobs: Tensor, teacher_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Log-prob of the teacher minus the policy's: minus one sample of each token's reverse KL(policy || teacher).

    With it as the advantage, the mean policy gradient of a token is that of its reverse KL (on-policy distillation:
    arXiv 2306.13649, and K. Lu, Thinking Machines Lab, 2025). All [N, T].
    """
    return torch.where(mask, teacher_logprobs - old_logprobs, 0.0)
