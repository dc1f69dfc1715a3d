from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from configs.algorithm import Algorithm
from trainer import policy
from trainer.gradients import accumulate, empty_micro_batch, micro_batch
from trainer.policy import Policy
from trainer.samples import Sample

ALGORITHM = Algorithm(kl_coefficient=0.1)
ADVANTAGES = torch.linspace(-1, 1, 12)


@pytest.fixture(scope="module")
def trained(policy_dir: Path) -> Policy:
    return policy.load(policy_dir, temperature=0.8, dtype="float32")


@pytest.fixture(scope="module")
def reference(policy_dir: Path) -> Policy:
    return policy.load(policy_dir, temperature=0.5, dtype="float32").requires_grad_(False)


def gradient(
    trained: Policy, reference: Policy | None, samples: list[Sample], split: list[list[int]], empty: int = 0
) -> tuple[dict[str, float], Tensor]:
    """Mean diagnostics and flat gradient of the samples, in the micro-batches that `split` lists."""
    scored = torch.tensor([sample.reward is not None for sample in samples])
    token_count = sum(len(sample.response_ids) for sample in samples if sample.reward is not None)
    batches = [micro_batch([samples[i] for i in rows], ADVANTAGES[rows], scored[rows], "cpu") for rows in split]
    trained.zero_grad()
    means, _ = accumulate(trained, reference, batches + [empty_micro_batch("cpu")] * empty, ALGORITHM, token_count)
    return means, torch.cat(
        [parameter.grad.flatten() for parameter in trained.parameters() if parameter.grad is not None]
    )


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(12)), parts=st.integers(1, 12))
def test_gradient_and_report_are_the_same_under_any_split_and_order(
    trained: Policy, reference: Policy, make_samples: Callable[..., list[Sample]], order: list[int], parts: int
):
    samples = make_samples()
    whole_means, whole = gradient(trained, reference, samples, [list(range(12))])

    means, split = gradient(trained, reference, samples, [order[i::parts] for i in range(parts)])

    assert (split - whole).norm() / whole.norm() < 1e-5
    assert means == pytest.approx(whole_means, rel=1e-5)


def test_a_micro_batch_without_trained_tokens_changes_nothing(
    trained: Policy, reference: Policy, make_samples: Callable[..., list[Sample]]
):
    samples = make_samples()
    _, without = gradient(trained, reference, samples, [list(range(12))])

    _, with_empty = gradient(trained, reference, samples, [list(range(12))], empty=2)

    assert torch.equal(with_empty, without)


def test_a_sample_without_a_reward_has_no_part_in_the_gradient(
    trained: Policy, reference: Policy, make_samples: Callable[..., list[Sample]]
):
    samples = make_samples()
    scored = [index for index, sample in enumerate(samples) if sample.reward is not None]
    _, expected = gradient(trained, reference, samples, [scored])

    _, actual = gradient(trained, reference, samples, [list(range(12))])

    assert (actual - expected).norm() / expected.norm() < 1e-5
