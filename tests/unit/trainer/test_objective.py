from itertools import product
from math import log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from configs.algorithm import AggregationName, Algorithm, Correction, Kl, LossName
from trainer.algorithm.aggregate import AGGREGATIONS, Normaliser, normaliser
from trainer.algorithm.losses import LOSSES
from trainer.algorithm.objective import Inputs, Objective, metrics, policy_objective


def objective_of(
    policy: Tensor,
    behaviour: Tensor,
    reference: Tensor | None = None,
    advantages: Tensor | None = None,
    mask: Tensor | None = None,
    algorithm: Algorithm | None = None,
) -> Objective:
    """Objective of [B, T] log-probs; advantages are 0 unless given."""
    mask = torch.ones_like(policy, dtype=torch.bool) if mask is None else mask
    inputs = Inputs(
        policy_logprobs=policy,
        behaviour_logprobs=behaviour,
        old_logprobs=behaviour,
        entropy=torch.ones_like(policy),
        advantages=torch.zeros_like(policy) if advantages is None else advantages,
        mask=mask,
        reference_logprobs=reference,
    )
    return policy_objective(inputs, normaliser(mask, 8), algorithm or Algorithm())


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_mean"])
def test_in_a_group_of_equal_rewards_the_kl_is_all_there_is_and_counts_once(aggregation):
    policy = torch.full((2, 3), -2.0)

    result = objective_of(
        policy,
        policy,
        reference=policy + 1,
        algorithm=Algorithm(aggregation=aggregation, kl=Kl(coefficient=0.1)),
    )

    assert result.loss.item() == pytest.approx(0.0718282)  # 0.1 (e - 1 - 1)
    assert result.means["kl"].item() == pytest.approx(0.718282, abs=1e-6)


def test_a_kl_in_the_reward_is_not_in_the_loss_as_well():
    policy = torch.full((2, 3), -2.0)

    result = objective_of(
        policy, policy, reference=policy + 1, algorithm=Algorithm(kl=Kl(coefficient=0.1, place="reward"))
    )

    assert result.loss.item() == 0
    assert result.means["kl"].item() == pytest.approx(0.718282, abs=1e-6)


def test_without_a_reference_there_is_no_kl_in_loss_and_report():
    policy = torch.full((2, 3), -2.0)

    result = objective_of(policy, policy)

    assert result.loss.item() == 0
    assert "kl" not in result.means


def test_a_distant_reference_gives_a_finite_loss():
    policy = torch.full((1, 1), -101.0)

    result = objective_of(policy, policy, reference=policy + 100, algorithm=Algorithm(kl=Kl(coefficient=0.1)))

    assert result.loss.isfinite()


def test_diagnostics_are_of_trained_tokens_only():
    behaviour = torch.tensor([[-1.0, -1.0, -50.0]])
    policy = torch.tensor([[-1.0, -1.0 + log(2), -1.0]])

    result = objective_of(policy, behaviour, advantages=torch.ones(1, 3), mask=torch.tensor([[True, True, False]]))

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


@pytest.mark.parametrize("columns", [0, 2])
def test_a_batch_without_trained_tokens_has_finite_metrics(columns: int):
    policy = torch.full((1, columns), -1.0)

    result = objective_of(policy, policy, mask=torch.zeros(1, columns, dtype=torch.bool))

    assert result.loss.item() == 0
    values = metrics({k: v.item() for k, v in result.means.items()}, {k: v.item() for k, v in result.maxima.items()})
    assert all(value == 0 for value in values.values())


def test_the_token_of_a_tool_changes_neither_loss_nor_gradient():
    # [a, TOOL, b]: the tool's token was not sampled.
    mask = torch.tensor([[True, False, True]])

    def loss_and_gradient(tool_logprob: float) -> tuple[float, list[float]]:
        policy = torch.tensor([[-1.0, tool_logprob, -2.0]], requires_grad=True)
        behaviour = torch.tensor([[-1.1, -3.0, -1.9]])
        result = objective_of(policy, behaviour, advantages=torch.ones(1, 3), mask=mask)
        result.loss.backward()
        assert isinstance(policy.grad, Tensor)
        return result.loss.item(), policy.grad[0].tolist()

    assert loss_and_gradient(-0.5) == loss_and_gradient(-50.0)
    assert normaliser(mask, 8).tokens == 2


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_second_epoch_takes_its_ratio_against_the_log_probs_from_before_the_first(name: LossName):
    """Two epochs on a policy of one logit a token: the first has ratio 1, the second exp(what the step changed)."""
    algorithm = Algorithm(loss=name, advantage="accepted" if name == "sft" else "grpo")
    policy = torch.full((1, 2), -1.0, requires_grad=True)
    old = policy.detach().clone()

    ratios = []
    for _ in range(2):
        result = objective_of(policy, old, advantages=torch.ones(1, 2), algorithm=algorithm)
        ratios.append(result.means["ratio_mean"].item())
        (gradient,) = torch.autograd.grad(result.loss, policy)
        policy = (policy - 0.1 * gradient).detach().requires_grad_()

    # The gradient of the first epoch is -1/2 for each of the two tokens.
    assert ratios == [1.0, pytest.approx(torch.tensor(0.05).exp().item())]


EVERYTHING = list(product(sorted(LOSSES), sorted(AGGREGATIONS)))


@pytest.mark.parametrize(("loss", "aggregation"), EVERYTHING)
@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    parts=st.integers(1, 4),
    seed=st.integers(0, 1000),
    random=st.randoms(),
)
def test_loss_gradient_and_metrics_are_the_same_under_any_split_into_micro_batches_and_any_order(
    loss: LossName, aggregation: AggregationName, lengths, parts, seed, random
):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = len(lengths), 6
    behaviour, old, policy, reference, advantages = (
        torch.randn(rows, columns, generator=generator, dtype=torch.float64) - shift for shift in (3, 3, 3, 3, 0)
    )
    mask = torch.arange(columns) < torch.tensor(lengths)[:, None]
    order = list(range(rows))
    random.shuffle(order)
    counts = normaliser(mask, columns)
    algorithm = Algorithm(
        loss=loss,
        advantage="accepted" if loss == "sft" else "grpo",
        aggregation=aggregation,
        old_policy="behaviour" if loss == "dppo" else "learner",
        kl=Kl(coefficient=0.1, unbiased_gradient=True),
        correction=Correction(
            weight="none" if loss == "dppo" else "token",
            reject="geometric",
            reject_range=(0.3, 3),
            off_policy_limit=1,
        ),
    )

    def run(micro_batches: list[list[int]]) -> tuple[Tensor, Tensor, dict[str, float]]:
        leaf = policy.clone().requires_grad_()
        total, means, maxima = torch.zeros((), dtype=torch.float64), {}, {}
        for batch in micro_batches:
            entropy = torch.ones(len(batch), columns, dtype=torch.float64)
            inputs = Inputs(
                leaf[batch], behaviour[batch], old[batch], entropy, advantages[batch], mask[batch], reference[batch]
            )
            result = policy_objective(inputs, counts, algorithm)
            result.loss.backward()
            total = total + result.loss.detach()
            means = {name: means.get(name, 0) + value.item() for name, value in result.means.items()}
            maxima = {name: max(maxima.get(name, 0), value.item()) for name, value in result.maxima.items()}
        assert isinstance(leaf.grad, Tensor)
        return total, leaf.grad, metrics(means, maxima)

    whole_loss, whole_gradient, whole_metrics = run([list(range(rows))])
    split_loss, split_gradient, split_metrics = run([order[i::parts] for i in range(parts) if order[i::parts]])

    torch.testing.assert_close(split_loss, whole_loss, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(split_gradient, whole_gradient, rtol=1e-6, atol=1e-9)
    assert split_metrics == pytest.approx(whole_metrics, rel=1e-6, abs=1e-9)


def test_a_normaliser_of_the_micro_batch_alone_would_change_the_loss():
    """The property above can fail: it does so with counts that are not those of the whole batch."""
    policy, mask = torch.full((1, 2), -1.0), torch.ones(1, 2, dtype=torch.bool)
    inputs = Inputs(policy, policy, policy, policy, torch.ones(1, 2), mask)

    alone = policy_objective(inputs, normaliser(mask, 8), Algorithm()).loss
    in_a_batch_of_eight_tokens = policy_objective(inputs, Normaliser(8, 2, 8), Algorithm()).loss

    assert alone.item() == -1
    assert in_a_batch_of_eight_tokens.item() == -0.25
