from math import nan
from typing import Any

import pytest
import torch

from configs.algorithm import Algorithm, Filters, Gae, Kl
from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.batch import AdvantageEstimate, Batch, estimate_advantages
from trainer.algorithm.objective import Inputs, policy_objective


def estimate_of(
    rewards: list[float], algorithm: Algorithm, groups: list[int] | None = None, **given: Any
) -> AdvantageEstimate:
    """Samples of two tokens and, unless given, of one group, on-policy and with unknown accuracy."""
    count = len(rewards)
    mask = torch.ones(count, 2, dtype=torch.bool)
    batch = {
        "rewards": torch.tensor(rewards),
        "accuracies": torch.full((count,), nan),
        "groups": torch.tensor(groups or [0] * count),
        "truncated": torch.zeros(count, dtype=torch.bool),
        "lags": torch.zeros(count, dtype=torch.long),
        "mask": mask,
        "old_logprobs": torch.full((count, 2), -1.0),
    }
    return estimate_advantages(Batch(**{**batch, **given}), algorithm)


def test_the_advantage_of_a_sample_stands_at_each_of_its_tokens():
    mask = torch.tensor([[True, True], [True, False]])

    result = estimate_of([1, 0], Algorithm(advantage="dr_grpo"), mask=mask)

    assert result.advantages.tolist() == [[0.5, 0.5], [-0.5, 0]]
    assert result.advantages.dtype == torch.float32
    assert result.mask.tolist() == mask.tolist()


def test_a_missing_reward_is_masked_and_leaves_the_others_as_if_it_were_not_there():
    result = estimate_of([1, nan, 0, 1], Algorithm())

    # [1, 0, 1]: mean 2/3, unbiased variance 1/3; (1/3) * sqrt(3) = 0.57735.
    assert result.advantages[:, 0].tolist() == pytest.approx([0.57735, 0, -1.15470, 0.57735], abs=1e-5)
    assert result.mask[:, 0].tolist() == [True, False, True, True]
    assert result.metrics["filtered_unscored"] == 1


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo", "maxrl", "batch_normalised", "reinforce_pp"])
@pytest.mark.parametrize("rewards", [[nan, nan, 1, nan], [1.0], [nan]])
def test_at_most_one_reward_gives_zero_and_not_nan(advantage, rewards: list[float]):
    result = estimate_of(rewards, Algorithm(advantage=advantage))

    assert result.advantages.tolist() == [[0, 0]] * len(rewards)


@pytest.mark.parametrize("rewards", [[1 / 3] * 8, [0.7] * 7, [0.1] * 8])
def test_a_group_of_equal_rewards_is_counted_and_has_no_gradient(rewards: list[float]):
    result = estimate_of(rewards, Algorithm())
    policy = torch.full(result.mask.shape, -1.0, requires_grad=True)
    old = torch.full_like(result.advantages, -1.0)
    inputs = Inputs(policy, old, old, old, result.advantages, result.mask)

    loss = policy_objective(inputs, normaliser(result.mask, 4), Algorithm()).loss
    (gradient,) = torch.autograd.grad(loss, policy)

    assert result.metrics["zero_variance_share"] == 1.0
    assert loss.item() == 0
    assert not gradient.any()


def test_groups_are_told_apart_wherever_their_members_stand():
    result = estimate_of([1, 5, 0, 5, 0, 5, 0], Algorithm(), groups=[7, 3, 7, 3, 7, 3, 7])

    assert result.advantages[:, 0].tolist() == pytest.approx([1.5, 0, -0.5, 0, -0.5, 0, -0.5], abs=1e-5)
    assert result.metrics["zero_variance_share"] == 0.5


def test_a_truncated_response_can_be_masked_while_its_reward_counts_in_the_baseline():
    algorithm = Algorithm(advantage="dr_grpo", filters=Filters(truncated="mask"))

    result = estimate_of([1, 0], algorithm, truncated=torch.tensor([False, True]))

    assert result.advantages.tolist() == [[0.5, 0.5], [0, 0]]
    assert normaliser(result.mask, 4).tokens == 2


def test_a_stale_sample_changes_no_other_sample():
    algorithm = Algorithm(advantage="dr_grpo", filters=Filters(max_lag=1))

    result = estimate_of([1, 0, 10], algorithm, lags=torch.tensor([0, 1, 2]))

    assert result.advantages[:, 0].tolist() == [0.5, -0.5, 0]
    assert result.metrics["filtered_stale"] == 1


def test_the_zero_variance_filter_goes_by_raw_accuracy():
    algorithm = Algorithm(filters=Filters(zero_variance=True))

    result = estimate_of([1.125, 1.0, 1, 0], algorithm, [0, 0, 1, 1], accuracies=torch.tensor([1.0, 1, 1, 0]))

    assert result.mask[:, 0].tolist() == [False, False, True, True]
    assert result.metrics["filtered_zero_variance"] == 2


KL_IN_REWARD = Kl(coefficient=0.1, estimator="k1", place="reward")


def test_a_kl_in_the_reward_is_taken_off_the_reward_of_the_sample():
    # Old minus reference: 0.5 for both tokens of the first sample, 0 for the second.
    reference = torch.tensor([[-1.5, -1.5], [-1.0, -1.0]])

    result = estimate_of([1, 1], Algorithm(advantage="dr_grpo", kl=KL_IN_REWARD), reference_logprobs=reference)

    # Rewards 1 - 0.1 * (0.5 + 0.5) and 1.
    assert result.advantages[:, 0].tolist() == pytest.approx([-0.05, 0.05])


def test_reinforce_pp_counts_the_kl_that_is_still_to_come_and_normalises_over_the_batchs_tokens():
    reference = torch.tensor([[-2.0, -3.0], [-1.0, -1.0]])

    result = estimate_of([1, 0], Algorithm(advantage="reinforce_pp", kl=KL_IN_REWARD), reference_logprobs=reference)

    # KL of tokens: [1, 2], [0, 0]; rewards to go [1 - 0.3, 1 - 0.2], [0, 0]: mean 0.375, unbiased variance 0.1891667.
    assert result.advantages.flatten().tolist() == pytest.approx([0.747245, 0.977167, -0.862206, -0.862206], abs=1e-5)


def test_reinforce_pp_baseline_takes_the_groups_mean_off_first():
    result = estimate_of([1, 0, 5, 3], Algorithm(advantage="reinforce_pp_baseline"), [0, 0, 1, 1])

    # Centred: [0.5, -0.5, 1, -1], each on two tokens: mean 0, unbiased variance 2 * 2.5 / 7.
    assert result.advantages[:, 0].tolist() == pytest.approx([0.591608, -0.591608, 1.183216, -1.183216], abs=1e-5)


def test_gae_normalises_advantages_but_not_the_critics_targets():
    values = torch.tensor([[0.5, 0.25], [0.5, 0.75]])

    result = estimate_of([1, 0], Algorithm(advantage="gae", gae=Gae(smoothing=1.0)), values=values)

    assert result.returns is not None
    assert result.returns.tolist() == [[1, 1], [0, 0]]
    # Before: [0.5, 0.75], [-0.5, -0.75]: mean 0, unbiased variance 1.625 / 3.
    assert result.advantages.flatten().tolist() == pytest.approx([0.679366, 1.019049, -0.679366, -1.019049], abs=1e-5)


def test_a_missing_reward_gives_the_critic_no_nan_to_learn_from():
    result = estimate_of([1, nan, 0], Algorithm(advantage="gae"), values=torch.zeros(3, 2))

    # Even behind a mask, the gradient of a NaN error would be 0 x NaN.
    assert result.returns is not None
    assert result.returns.isfinite().all()
    assert not result.mask[1].any()


def test_accepted_learns_from_right_answers_only():
    result = estimate_of([1.2, 0.2], Algorithm(advantage="accepted", loss="sft"), accuracies=torch.tensor([1.0, 0.0]))

    assert result.mask.tolist() == [[True, True], [False, False]]
    assert result.advantages.tolist() == [[1, 1], [0, 0]]
    assert result.metrics["filtered_wrong"] == 1


def test_distillation_compares_with_the_teacher_token_by_token():
    algorithm = Algorithm(advantage="distillation", teacher="big")

    result = estimate_of([0, 0], algorithm, teacher_logprobs=torch.tensor([[-0.5, -3.0], [-1.0, -1.0]]))

    assert result.advantages.tolist() == [[0.5, -2.0], [0, 0]]


@pytest.mark.parametrize(
    ("algorithm", "missing"),
    [
        (Algorithm(advantage="gae"), "values"),
        (Algorithm(advantage="distillation", teacher="big"), "teacher_logprobs"),
        (Algorithm(kl=KL_IN_REWARD), "reference_logprobs"),
    ],
)
def test_what_is_missing_is_named(algorithm: Algorithm, missing: str):
    with pytest.raises(ValueError, match=f"needs Batch.{missing}, which is None"):
        estimate_of([1, 0], algorithm)


@pytest.mark.parametrize("advantage", ["batch_normalised", "reinforce_pp", "reinforce_pp_baseline", "gae"])
def test_a_scale_made_of_data_is_that_of_the_whole_batch_whatever_the_micro_batches(advantage):
    """Micro-batches get rows of one estimate; an estimate of a half would have another scale."""
    rewards, groups = [1.0, 0.0, 4.0, 1.0], [0, 0, 1, 1]
    algorithm = Algorithm(advantage=advantage)
    values = torch.zeros(4, 2)

    whole = estimate_of(rewards, algorithm, groups, values=values)
    half = estimate_of(rewards[:2], algorithm, groups[:2], values=values[:2])

    def loss(rows: slice) -> float:
        zeros = torch.zeros(4, 2)[rows]
        inputs = Inputs(zeros, zeros, zeros, zeros, whole.advantages[rows] ** 2, whole.mask[rows])
        return policy_objective(inputs, normaliser(whole.mask, 4), algorithm).loss.item()

    assert sum(loss(slice(row, row + 1)) for row in range(4)) == pytest.approx(loss(slice(0, 4)))
    assert not torch.allclose(half.advantages, whole.advantages[:2])
