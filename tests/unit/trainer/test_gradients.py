from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from configs.algorithm import Algorithm, Kl
from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.batch import AdvantageEstimate, Batch
from trainer.batches.samples import Sample
from trainer.learner.gradients import Experience, accumulate, critic_objectives, policy_objectives
from trainer.model import policy
from trainer.model.critic import Critic
from trainer.model.policy import Policy

ALGORITHM = Algorithm(kl=Kl(coefficient=0.1))


@pytest.fixture(scope="module")
def trained(policy_dir: Path) -> Policy:
    return policy.load(policy_dir, temperature=0.8, dtype="float32")


@pytest.fixture(scope="module")
def critic(policy_dir: Path) -> Critic:
    critic = Critic(policy.load(policy_dir, temperature=1.0, dtype="float32"))
    with torch.no_grad():
        critic.head.weight.fill_(0.1)
    return critic


@pytest.fixture(scope="module")
def experience(make_samples: Callable[..., list[Sample]]) -> Experience:
    """Twelve samples, of which the third and the eighth are not trained on."""
    samples = make_samples()
    lengths = torch.tensor([len(sample.response_ids) for sample in samples])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    behaviour = torch.linspace(-4.5, -3.5, mask.numel()).view_as(mask) * mask
    trained = mask.clone()
    trained[[2, 7]] = False
    per_sample = torch.linspace(-1, 1, 12)
    batch = Batch(
        rewards=per_sample,
        accuracies=per_sample,
        groups=torch.arange(12) // 4,
        truncated=torch.zeros(12, dtype=torch.bool),
        lags=torch.zeros(12, dtype=torch.int64),
        mask=mask,
        old_logprobs=behaviour,
        reference_logprobs=behaviour - 0.1 * mask,
        values=per_sample[:, None] * mask,
    )
    estimate = AdvantageEstimate(per_sample[:, None] * trained, trained, 1.5 * per_sample[:, None] * mask, {})
    return Experience([(sample.prompt_ids, sample.response_ids) for sample in samples], behaviour, batch, estimate)


def gradient_of(module: torch.nn.Module) -> Tensor:
    found = torch.cat([weight.grad.flatten() for weight in module.parameters() if weight.grad is not None])
    module.zero_grad()
    return found


def policy_gradient(trained: Policy, experience: Experience, split: list[list[int]]) -> tuple[dict[str, float], Tensor]:
    counts = normaliser(experience.estimate.mask, 8)
    means, _ = accumulate(policy_objectives(trained, experience, split, counts, ALGORITHM, "cpu"), "cpu")
    return means, gradient_of(trained)


def critic_gradient(critic: Critic, experience: Experience, split: list[list[int]]) -> tuple[dict[str, float], Tensor]:
    counts = normaliser(experience.estimate.mask, 8)
    means, _ = accumulate(critic_objectives(critic, experience, split, counts, 0.2, "cpu"), "cpu")
    return means, gradient_of(critic)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(12)), parts=st.integers(1, 12))
def test_gradients_and_reports_are_the_same_under_any_split_and_order(
    trained: Policy, critic: Critic, experience: Experience, order: list[int], parts: int
):
    for gradient in (partial(policy_gradient, trained), partial(critic_gradient, critic)):
        whole_means, whole = gradient(experience, [list(range(12))])

        means, split = gradient(experience, [order[i::parts] for i in range(parts)])

        assert (split - whole).norm() / whole.norm() < 1e-5
        assert means == pytest.approx(whole_means, rel=1e-5, abs=1e-7)


def test_four_micro_batches_have_the_gradient_of_the_joined_batch_and_the_last_alone_has_not(
    trained: Policy, experience: Experience
):
    _, joined = policy_gradient(trained, experience, [list(range(12))])

    _, four = policy_gradient(trained, experience, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    _, last = policy_gradient(trained, experience, [[9, 10, 11]])

    assert (four - joined).norm() / joined.norm() < 1e-5
    assert (last - joined).norm() / joined.norm() > 0.1


def test_an_empty_micro_batch_changes_nothing(trained: Policy, experience: Experience):
    _, without = policy_gradient(trained, experience, [list(range(12))])

    means, with_empty = policy_gradient(trained, experience, [list(range(12)), [], []])

    assert torch.equal(with_empty, without)
    assert means == policy_gradient(trained, experience, [list(range(12))])[0]


def test_samples_outside_of_the_mask_have_no_part_in_the_gradient(trained: Policy, experience: Experience):
    inside = [row for row in range(12) if row not in (2, 7)]
    _, expected = policy_gradient(trained, experience, [inside])

    _, actual = policy_gradient(trained, experience, [list(range(12))])

    assert (actual - expected).norm() / expected.norm() < 1e-5
