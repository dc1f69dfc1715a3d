"""Each algorithm solves a small task of tokens, and with the sign of its loss flipped it does not.

The task: a policy of independent tokens (a table of logits) writes responses of three tokens out of four; a response is
right if it has token 1 in the first place and token 2 in the last. Samples go through the same functions as the
learner's: `estimate_advantages`, then `policy_objective` over the whole batch, two epochs a batch.
"""

from math import nan

import pytest
import torch
from torch import Tensor

from configs.algorithm import Algorithm, Correction, Kl
from trainer.algorithm.advantages import ESTIMATORS
from trainer.algorithm.aggregate import AGGREGATIONS, normaliser
from trainer.algorithm.batch import Batch, estimate_advantages
from trainer.algorithm.critic import value_objective
from trainer.algorithm.losses import LOSSES
from trainer.algorithm.objective import Inputs, policy_objective

TOKENS, LENGTH, GROUPS, SAMPLES = 4, 3, 4, 8
CHANCE = 1 / TOKENS**2
"""Of a right answer, by the first policy."""


class Bandit:
    """The policy, a teacher that knows the answer, a critic with a value for each place, and their optimizers."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.logits = torch.zeros(LENGTH, TOKENS, requires_grad=True)
        self.values = torch.zeros(LENGTH, requires_grad=True)
        self.teacher = torch.zeros(LENGTH, TOKENS)
        self.teacher[0, 1] = self.teacher[2, 2] = 5.0
        self.optimizer = torch.optim.Adam([self.logits, self.values], lr=0.1)

    def sample(self) -> Tensor:
        """Token ids, [N, T]."""
        probabilities = self.logits.softmax(1).detach()
        return torch.multinomial(probabilities, GROUPS * SAMPLES, replacement=True, generator=self.generator).T

    def chance(self) -> float:
        """Probability of a right answer."""
        probabilities = self.logits.softmax(1)
        return (probabilities[0, 1] * probabilities[2, 2]).item()


def logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.log_softmax(1).expand(len(tokens), -1, -1).gather(2, tokens[..., None]).squeeze(2)


def learn(algorithm: Algorithm, seed: int, sign: float = 1.0, updates: int = 40) -> float:
    """Return the probability of a right answer after some updates."""
    bandit = Bandit(seed)
    count = GROUPS * SAMPLES
    for _ in range(updates):
        tokens = bandit.sample()
        old = logprobs(bandit.logits, tokens).detach()
        rewards = ((tokens[:, 0] == 1).float() + (tokens[:, 2] == 2).float()) / 2
        reference = torch.full_like(old, 1 / TOKENS).log()
        old_values = bandit.values.detach().expand(count, -1)
        batch = Batch(
            rewards=rewards,
            accuracies=(rewards == 1).float() if algorithm.advantage == "accepted" else torch.full((count,), nan),
            groups=torch.arange(count) // SAMPLES,
            truncated=torch.zeros(count, dtype=torch.bool),
            lags=torch.zeros(count, dtype=torch.long),
            mask=torch.ones_like(tokens, dtype=torch.bool),
            old_logprobs=old,
            reference_logprobs=reference,
            teacher_logprobs=logprobs(bandit.teacher, tokens),
            values=old_values,
        )
        known = estimate_advantages(batch, algorithm)
        counts = normaliser(known.mask, LENGTH)
        for _epoch in range(2):
            policy = logprobs(bandit.logits, tokens)
            inputs = Inputs(policy, old, old, torch.zeros_like(old), known.advantages, known.mask, reference)
            loss = policy_objective(inputs, counts, algorithm).loss
            if known.returns is not None:
                values = bandit.values.expand(count, -1)
                loss = (
                    loss
                    + value_objective(
                        values, old_values, known.returns, known.mask, counts, algorithm.gae.value_clip
                    ).loss
                )
            bandit.optimizer.zero_grad()
            (sign * loss).backward()
            bandit.optimizer.step()
    return bandit.chance()


ALGORITHMS = {
    **{
        f"advantage {name}": Algorithm(advantage=name)
        for name in (*sorted(set(ESTIMATORS) - {"accepted"}), "reinforce_pp", "gae")
    },
    **{f"loss {name}": Algorithm(loss=name) for name in sorted(set(LOSSES) - {"sft"})},
    **{f"aggregation {name}": Algorithm(aggregation=name) for name in sorted(AGGREGATIONS)},
    "rejection sampling": Algorithm(advantage="accepted", loss="sft"),
    "distillation": Algorithm(advantage="distillation", teacher="a policy that knows the answer"),
    "kl in the loss": Algorithm(kl=Kl(coefficient=0.01)),
    "unbiased kl": Algorithm(kl=Kl(coefficient=0.01, unbiased_gradient=True)),
    "kl in the reward": Algorithm(advantage="reinforce_pp", kl=Kl(coefficient=0.01, estimator="k1", place="reward")),
    "correction": Algorithm(old_policy="learner", correction=Correction(weight="token", reject="geometric")),
    "dual clip": Algorithm(dual_clip=3.0),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_learns_the_right_answer(name: str, seed: int):
    assert learn(ALGORITHMS[name], seed) > 0.8


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_a_flipped_sign_it_does_not(name: str):
    assert learn(ALGORITHMS[name], seed=0, sign=-1.0) < CHANCE


@pytest.mark.parametrize("kl", [Kl(coefficient=1.0), Kl(coefficient=1.0, estimator="k1", place="reward")])
def test_a_strong_kl_holds_the_policy_at_the_reference(kl: Kl):
    assert learn(Algorithm(advantage="dr_grpo", kl=kl), seed=0) < 3 * CHANCE
