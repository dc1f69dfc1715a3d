from math import inf, log, nan

import pytest
import torch
from torch import Tensor

from configs.algorithm import Algorithm, Correction
from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.corrections import Weights, correct
from trainer.algorithm.objective import Inputs, metrics, policy_objective


def corrected(ratios: list[float], settings: Correction, advantage: float = 1.0) -> Weights:
    """Weights of one sequence whose learner is the current policy."""
    log_ratios = torch.tensor([[log(ratio) for ratio in ratios]])
    mask = torch.ones_like(log_ratios, dtype=torch.bool)
    return correct(log_ratios, -log_ratios, torch.full_like(log_ratios, advantage), mask, settings)


def used(ratios: list[float], advantage: float = 1.0, **settings) -> list[float]:
    return corrected(ratios, Correction(**settings), advantage).used[0].tolist()


def test_without_a_correction_every_weight_is_one():
    assert used([8, 0.125, 1]) == [1, 1, 1]


def test_token_weights_are_truncated():
    result = corrected([8, 0.125, 1], Correction(weight="token", weight_range=(0.0, 2.0)))

    assert result.used.tolist() == [pytest.approx([2, 0.125, 1])]
    assert result.raw.tolist() == [pytest.approx([8, 0.125, 1])]
    assert result.truncated.tolist() == [[True, False, False]]


def test_sequence_weights_are_the_truncated_product():
    assert used([1.5, 1.2], weight="sequence", weight_range=(0.0, 2.0)) == pytest.approx([1.8, 1.8])
    assert used([1.5, 1.5], weight="sequence", weight_range=(0.0, 2.0)) == [2, 2]


def test_icepop_masks_tokens_out_of_range_and_weighs_the_others():
    result = used([8, 0.125, 1.5], weight="token", weight_range=(0.0, 5.0), reject="token", reject_range=(0.5, 5.0))

    assert result == pytest.approx([0, 0, 1.5])


def test_a_sequence_is_rejected_by_its_product():
    assert used([1.5, 1.5], reject="sequence", reject_range=(0.5, 2.0)) == [0, 0]
    assert used([1.5, 1.2], reject="sequence", reject_range=(0.5, 2.0)) == [1, 1]


def test_the_geometric_mean_keeps_long_sequences_of_small_gaps():
    assert used([1.1] * 20, reject="geometric", reject_range=(0.5, 2.0)) == [1] * 20
    assert used([1.1] * 20, reject="sequence", reject_range=(0.5, 2.0)) == [0] * 20
    assert used([3.0] * 2, reject="geometric", reject_range=(0.5, 2.0)) == [0, 0]


def test_a_kept_sequence_still_has_its_tokens_truncated():
    both = {"weight": "token", "weight_range": (0.5, 2.0), "reject": "geometric", "reject_range": (0.5, 2.0)}

    assert used([8, 0.125], **both) == pytest.approx([2, 0.5])


def test_off_policy_sequences_of_negative_advantage_are_masked():
    # The policy's probabilities are a third of the behaviour's: mean log(behaviour/policy) = ln 3 = 1.0986.
    third = [1 / 3, 1 / 3]

    assert used(third, advantage=-1.0, off_policy_limit=1.0) == [0, 0]
    assert used(third, advantage=-1.0, off_policy_limit=1.2) == [1, 1]
    assert used(third, advantage=1.0, off_policy_limit=1.0) == [1, 1]


def test_a_nan_ratio_is_rejected():
    log_ratios = torch.tensor([[nan, 0.0]])
    settings = Correction(reject="token")

    result = correct(log_ratios, -log_ratios, torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool), settings)

    assert result.used.tolist() == [[0, 1]]


def objective_of(policy: list[float], behaviour: list[float], old: list[float] | None = None, **settings):
    """Loss, gradient and metrics of one sequence of advantage 1."""
    logprobs = torch.tensor([policy], requires_grad=True)
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    engine = torch.tensor([behaviour])
    inputs = Inputs(
        policy_logprobs=logprobs,
        behaviour_logprobs=engine,
        old_logprobs=engine if old is None else torch.tensor([old]),
        entropy=torch.zeros_like(engine),
        advantages=torch.ones_like(engine),
        mask=mask,
    )
    result = policy_objective(inputs, normaliser(mask, 8), Algorithm(**settings))
    result.loss.backward()
    assert isinstance(logprobs.grad, Tensor)
    values = metrics({k: v.item() for k, v in result.means.items()}, {k: v.item() for k, v in result.maxima.items()})
    return result.loss.item(), logprobs.grad[0].tolist(), values


@pytest.mark.parametrize("loss", ["clip", "policy_gradient", "cispo"])
def test_a_rejected_sequence_with_a_log_ratio_of_1000_gives_loss_0_and_not_nan(loss: str):
    result = objective_of([0.0, -1], [-1000.0, -1], loss=loss, correction=Correction(reject="geometric"))

    assert result[0] == 0
    assert result[1] == [0, 0]


def test_decoupled_ppo_clips_against_the_old_policy_and_weighs_it_against_the_behaviour():
    # policy/old = 1.5 is clipped to 1.2; old/behaviour = 1.5 is the weight. policy/behaviour = 2.25 is in neither.
    loss, _, _ = objective_of(
        [log(0.9)],
        [log(0.4)],
        old=[log(0.6)],
        clip_high=0.2,
        old_policy="learner",
        correction=Correction(weight="token"),
    )

    assert loss == pytest.approx(-1.5 * 1.2)


def test_a_truncated_weight_makes_the_plain_policy_gradient_right_for_stale_samples():
    _, gradient, _ = objective_of(
        [log(0.3), log(0.9)],
        [log(0.2), log(0.1)],
        loss="policy_gradient",
        correction=Correction(weight="token"),
    )

    assert gradient == pytest.approx([-1.5 / 2, -2 / 2])


def test_diagnostics_before_and_after_truncation():
    _, _, values = objective_of(
        [log(0.4), log(0.1)],
        [log(0.1), log(0.1)],
        loss="policy_gradient",
        correction=Correction(weight="token"),
    )

    # Before: ratios 4, 1: mean 2.5, effective sample size 2.5² / ((16 + 1) / 2). After: 2, 1: 1.5² / (5 / 2).
    assert values["importance_mean"] == pytest.approx(2.5)
    assert values["importance_max"] == pytest.approx(4)
    assert values["importance_ess"] == pytest.approx(0.735294)
    assert values["importance_used_mean"] == pytest.approx(1.5)
    assert values["importance_used_max"] == pytest.approx(2)
    assert values["importance_used_ess"] == pytest.approx(0.9)
    assert values["importance_truncated_share"] == 0.5
    assert values["importance_rejected_share"] == 0


def test_the_effective_sample_size_counts_what_was_rejected_as_lost():
    _, _, values = objective_of([0.0, -1], [-5.0, -1], correction=Correction(reject="token"))

    assert values["importance_rejected_share"] == 0.5
    assert values["importance_used_ess"] == pytest.approx(0.5)


def test_ratios_that_overflow_leave_finite_diagnostics():
    _, _, values = objective_of([-3.0, -1], [-92.0, -1])

    assert all(-inf < value < inf for value in values.values())
