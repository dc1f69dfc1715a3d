from math import log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from configs.algorithm import Algorithm
from trainer.algorithm.advantages import group_relative
from trainer.algorithm.objective import Objective, grpo


def objective_of(
    policy: Tensor,
    behaviour: Tensor,
    reference: Tensor | None = None,
    advantages: Tensor | None = None,
    mask: Tensor | None = None,
    kl_coefficient: float = 0.0,
) -> Objective:
    """Objective of [B, T] log-probs; advantages are 0 unless given."""
    mask = torch.ones_like(policy, dtype=torch.bool) if mask is None else mask
    advantages = torch.zeros(len(policy)) if advantages is None else advantages
    return grpo(
        policy,
        behaviour,
        reference,
        torch.ones_like(policy),
        advantages,
        mask,
        int(mask.sum()),
        Algorithm(kl_coefficient=kl_coefficient),
    )


def test_the_kl_coefficient_counts_once():
    policy = torch.full((2, 3), -2.0)

    result = objective_of(policy, policy, reference=policy + 1, kl_coefficient=0.1)

    assert result.loss.item() == pytest.approx(0.0718282)  # 0.1 (e - 1 - 1)
    assert result.means["kl"].item() == pytest.approx(0.718282, abs=1e-6)


def test_without_a_reference_there_is_no_kl_in_loss_and_report():
    policy = torch.full((2, 3), -2.0)

    result = objective_of(policy, policy)

    assert result.loss.item() == 0
    assert "kl" not in result.means


def test_diagnostics_are_of_trained_tokens_only():
    behaviour = torch.tensor([[-1.0, -1.0, -50.0]])
    policy = torch.tensor([[-1.0, -1.0 + log(2), -1.0]])

    result = objective_of(policy, behaviour, advantages=torch.tensor([1.0]), mask=torch.tensor([[True, True, False]]))

    assert result.means["ratio_mean"].item() == pytest.approx(1.5)
    assert result.means["clip_share"].item() == 0.5
    assert result.means["entropy"].item() == 1.0
    assert result.means["logprob_gap_mean"].item() == pytest.approx(log(2) / 2)
    assert result.maxima["logprob_gap_max"].item() == pytest.approx(log(2))
    assert result.means["clamp_share"].item() == 0


def test_clamped_tokens_are_counted_and_their_gap_is_reported_raw():
    result = objective_of(torch.tensor([[-3.0, -1.0]]), torch.tensor([[-92.0, -1.0]]))

    assert result.means["clamp_share"].item() == 0.5
    assert result.maxima["logprob_gap_max"].item() == 89


def test_a_batch_without_trained_tokens_has_finite_diagnostics():
    policy = torch.full((1, 2), -1.0)

    result = objective_of(policy, policy, mask=torch.zeros(1, 2, dtype=torch.bool))

    assert all(value.item() == 0 for value in [result.loss, *result.means.values(), *result.maxima.values()])


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    parts=st.integers(1, 4),
    seed=st.integers(0, 1000),
    random=st.randoms(),
)
def test_loss_and_gradient_are_the_same_under_any_split_into_micro_batches_and_any_order(lengths, parts, seed, random):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = len(lengths), 6
    policy, behaviour, reference = -3 * torch.rand(3, rows, columns, generator=generator, dtype=torch.float64)
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    mask = torch.arange(columns) < torch.tensor(lengths)[:, None]
    order = list(range(rows))
    random.shuffle(order)

    def loss_and_gradient(micro_batches: list[list[int]]) -> tuple[float, Tensor]:
        leaf = policy.clone().requires_grad_()
        total = 0.0
        for batch in micro_batches:
            result = grpo(
                leaf[batch],
                behaviour[batch],
                reference[batch],
                torch.zeros(len(batch), columns, dtype=torch.float64),
                advantages[batch],
                mask[batch],
                int(mask.sum()),
                Algorithm(kl_coefficient=0.1),
            )
            result.loss.backward()
            total += result.loss.item()
        assert isinstance(leaf.grad, Tensor)
        return total, leaf.grad

    loss, gradient = loss_and_gradient([list(range(rows))])
    split_loss, split_gradient = loss_and_gradient([order[i::parts] for i in range(parts) if order[i::parts]])

    assert split_loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    torch.testing.assert_close(split_gradient, gradient, rtol=1e-9, atol=1e-12)


def chance_of_rewarded_token(seed: int, sign: float = 1.0) -> float:
    """A policy of two logits, 8 samples a step, reward 1 for token 1; 50 steps of Adam at 0.1."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(50):
        tokens = torch.multinomial(logits.softmax(0).detach(), 8, replacement=True, generator=generator)
        advantages = group_relative(tokens.float(), torch.zeros(8, dtype=torch.long)).values
        logprobs = logits.log_softmax(0)[tokens][:, None]
        loss = sign * objective_of(logprobs, logprobs.detach(), advantages=advantages).loss
        optimizer.zero_grad()
        loss.backward()
        assert isinstance(logits.grad, Tensor) and logits.grad.isfinite().all()
        optimizer.step()
    return logits.softmax(0)[1].item()


@pytest.mark.parametrize("seed", range(5))
def test_a_bandit_learns_the_rewarded_token(seed: int):
    assert chance_of_rewarded_token(seed) > 0.9


def test_a_flipped_sign_unlearns_it():
    assert chance_of_rewarded_token(0, sign=-1.0) < 0.1
