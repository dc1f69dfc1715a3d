"""What is rejected leaves the baseline of its group, and the loss's mean as the recipe says (U26, D05, D25)."""

from dataclasses import replace
from math import exp, log, nan
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from configs.algorithm import AdvantageName, Algorithm, Correction, Filters, RejectionName
from tests.unit.trainer.learners import LEARNER_IS_OLD, equal, state
from trainer.algorithm.advantages import ESTIMATORS
from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.batch import AdvantageEstimate, Batch, estimate_advantages
from trainer.algorithm.corrections import counted, rejected_before
from trainer.algorithm.objective import Inputs, Objective, policy_objective
from trainer.batches.samples import Sample

FAR = -60.0
"""A behaviour log-prob whose ratio is out of every range."""


def estimate_of(rewards: list[float], rejected: list[int], **settings: Any) -> AdvantageEstimate:
    """Samples of two tokens and of one group. The correction rejects those of some places, by their product of ratios.

    A group of its own is given by `groups`.
    """
    groups = torch.tensor(settings.pop("groups", [0] * len(rewards)))
    truncated = torch.tensor(settings.pop("truncated", [False] * len(rewards)))
    algorithm = Algorithm(**{"correction": Correction(reject="sequence"), **settings})
    own = torch.full((len(rewards), 2), -1.0)
    behaviour = own.clone()
    behaviour[rejected] = FAR
    mask = torch.ones_like(own, dtype=torch.bool)
    batch = Batch(
        rewards=torch.tensor(rewards),
        accuracies=torch.full((len(rewards),), nan),
        groups=groups,
        truncated=truncated,
        lags=torch.zeros(len(rewards), dtype=torch.int64),
        mask=mask,
        old_logprobs=behaviour,
        values=torch.zeros_like(own),
    )
    return estimate_advantages(batch, algorithm, rejected_before(own, behaviour, mask, algorithm.correction))


def of_samples(estimate: AdvantageEstimate) -> list[float]:
    return estimate.advantages[:, 0].tolist()


@pytest.mark.parametrize("reject", ["sequence", "geometric"])
def test_u26_a_rejected_sequence_leaves_the_mean_and_the_deviation_of_its_group(reject: RejectionName):
    result = estimate_of([1, 0, 0, 5], [3], correction=Correction(reject=reject))

    # With the rejected one among them: -0.210, -0.630, -0.630.
    assert of_samples(result) == pytest.approx([1.1547, -0.57735, -0.57735, 0], abs=1e-5)
    assert result.metrics["filtered_rejected"] == 1
    assert result.metrics["rejected_share"] == 0.25


@pytest.mark.parametrize("advantage", [*sorted(set(ESTIMATORS) - {"accepted"}), "reinforce_pp", "gae"])
def test_u26_every_advantage_is_that_of_the_samples_that_are_left(advantage: AdvantageName):
    rewards, groups = [1.0, 0.0, 0.5, 7.0, 2.0, 3.0], [0, 0, 0, 0, 1, 1]

    with_one_rejected = estimate_of(rewards, [3], advantage=advantage, groups=groups)
    without_it = estimate_of(rewards[:3] + rewards[4:], [], advantage=advantage, groups=groups[:3] + groups[4:])

    left = with_one_rejected.advantages[[0, 1, 2, 4, 5]]
    torch.testing.assert_close(left, without_it.advantages)
    assert with_one_rejected.advantages[3].tolist() == [0, 0]


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=8),
    rejected=st.sets(st.integers(0, 7)),
    reward=st.floats(-100, 100),
)
def test_u26_the_reward_of_a_rejected_sample_changes_nothing(rewards: list[float], rejected: set[int], reward: float):
    places = sorted(place for place in rejected if place < len(rewards))
    other = [reward if place in rejected else value for place, value in enumerate(rewards)]

    assert of_samples(estimate_of(rewards, places)) == of_samples(estimate_of(other, places))


def test_u26_a_group_of_which_one_is_left_or_none_teaches_nothing_and_is_no_error():
    assert of_samples(estimate_of([1, 0, 5, 2], [1, 3], groups=[0, 0, 1, 1])) == [0, 0, 0, 0]
    assert of_samples(estimate_of([1, 0], [0, 1])) == [0, 0]


def test_u26_a_group_that_is_all_right_without_the_rejected_one_is_dropped_by_the_filter():
    result = estimate_of([1, 1, 0, 1, 0], [2], groups=[0, 0, 0, 1, 1], filters=Filters(zero_variance=True))

    assert result.mask[:, 0].tolist() == [False, False, False, True, True]
    assert result.metrics["filtered_zero_variance"] == 2


def test_u26_only_right_answers_count_for_rejection_sampling_rejected_or_not():
    result = estimate_of([1, 1, 0], [1, 2], advantage="accepted")

    assert of_samples(result) == [1, 0, 0]
    assert result.mask[:, 0].tolist() == [True, True, False]


def test_u26_a_truncated_response_that_is_masked_and_rejected_is_neither_compared_nor_counted():
    masked = Filters(truncated="mask")

    result = estimate_of([1, 0, 0, 5], [3], filters=masked, truncated=[False, False, False, True])

    assert of_samples(result) == pytest.approx([1.1547, -0.57735, -0.57735, 0], abs=1e-5)
    assert result.mask[:, 0].tolist() == [True, True, True, False]


def test_u26_the_critic_learns_the_reward_that_a_rejected_sample_got():
    result = estimate_of([1, 5], [1], advantage="gae")

    assert result.returns is not None
    assert result.returns[1].tolist()[1] == 5


RATIOS = [exp(gap) for gap in (0.1, -1.5, 0.8, -10.0, 0.3)]
"""Of five tokens; within [0.5, 2] are the first and the last (the example of slime #657)."""


def objective_of(ratios: list[list[float]], **settings: Any) -> Objective:
    """Sequences of advantage 1 by a loss that is minus the ratio."""
    correction = Correction.model_validate({"reject": "token", **settings.pop("correction", {})})
    algorithm = Algorithm(correction=correction, clip_high=10.0, clip_low=1.0, **settings)
    own = torch.full((len(ratios), len(ratios[0])), -1.0)
    behaviour = own - torch.tensor([[log(ratio) for ratio in row] for row in ratios])
    mask = torch.ones_like(own, dtype=torch.bool)
    rejected = rejected_before(own, behaviour, mask, correction) if correction.rejects_before else None
    inputs = Inputs(own, behaviour, behaviour, own, torch.ones_like(own), mask, rejected=rejected)
    return policy_objective(inputs, normaliser(counted(mask, rejected, correction), 8), algorithm)


def test_u26_rejected_tokens_count_in_the_mean_as_in_icepops_objective_unless_the_recipe_leaves_them_out():
    sampled, kept = (objective_of([RATIOS], correction={"mean_over": over}) for over in ("sampled", "kept"))

    assert sampled.loss.item() == pytest.approx(-(RATIOS[0] + RATIOS[4]) / 5)
    assert kept.loss.item() == pytest.approx(-(RATIOS[0] + RATIOS[4]) / 2)
    assert sampled.means["importance_rejected_share"].item() == pytest.approx(0.6)


def test_u26_a_mean_over_what_is_kept_is_one_of_sequences_too():
    rows = [RATIOS, [0.8] * 5]
    of_sequences = {"aggregation": "sequence_mean_token_mean"}

    kept = objective_of(rows, **of_sequences, correction={"mean_over": "kept"})
    one_left = objective_of(
        [[50.0] * 5, [0.8] * 5], **of_sequences, correction={"reject": "sequence", "mean_over": "kept"}
    )

    assert kept.loss.item() == pytest.approx(-((RATIOS[0] + RATIOS[4]) / 2 + 0.8) / 2)
    # 0.8**5 is out of the range as well.
    assert one_left.loss.item() == 0
    only = objective_of([[50.0] * 5, [0.9] * 5], **of_sequences, correction={"reject": "sequence", "mean_over": "kept"})
    assert only.loss.item() == pytest.approx(-0.9)


def test_u26_a_mean_over_what_is_kept_needs_something_that_is_rejected():
    with pytest.raises(ValueError, match="mean_over kept has no effect with reject none"):
        Correction(mean_over="kept")


def group_of_four(learner: Any) -> list[Sample]:
    """On-policy samples of one prompt; the last has a reward far from the others'."""
    sequences = [([1, 2, 3], [4, 5 + index]) for index in range(4)]
    own: Tensor = learner._logprobs(learner._policy, sequences)
    return [
        Sample("q", prompt, response, own[index].tolist(), 0, reward)
        for index, ((prompt, response), reward) in enumerate(zip(sequences, [1.0, 0.0, 0.0, 5.0], strict=True))
    ]


@pytest.mark.parametrize("reject", ["sequence", "geometric"])
@pytest.mark.parametrize("old", [{}, LEARNER_IS_OLD], ids=["behaviour", "learner"])
def test_u26_the_learner_rejects_by_its_own_log_probs_before_the_first_step(make_learner, reject: str, old: dict):
    learner = make_learner(algorithm={"correction": {"reject": reject}, **old})
    samples = group_of_four(learner)
    samples[3] = replace(samples[3], behaviour_logprobs=[FAR, FAR])

    estimate = learner._look_at(samples).estimate
    metrics = learner.update(samples)

    assert of_samples(estimate) == pytest.approx([1.1547, -0.57735, -0.57735, 0], abs=1e-5)
    assert metrics["policy/filtered_rejected"] == 1
    assert metrics["policy/importance_rejected_share"] == pytest.approx(0.25)


def test_u26_a_learner_whose_mean_is_over_what_is_kept_steps_as_if_the_rejected_sample_was_not_there(make_learner):
    settings = {"algorithm": {"correction": {"reject": "sequence", "mean_over": "kept"}}}
    with_it, without_it = make_learner(**settings), make_learner(**settings)
    samples = group_of_four(with_it)

    metrics = with_it.update([*samples[:3], replace(samples[3], behaviour_logprobs=[FAR, FAR])])
    expected = without_it.update(samples[:3])

    assert metrics["policy/loss"] == pytest.approx(expected["policy/loss"], rel=1e-5, abs=1e-7)
    assert metrics["policy/grad_norm"] == pytest.approx(expected["policy/grad_norm"], rel=1e-5)


@pytest.mark.parametrize("over", ["sampled", "kept"])
@pytest.mark.parametrize("reject", ["token", "sequence"])
def test_u26_micro_batches_do_not_change_what_is_rejected_or_divided_by(make_learner, reject: str, over: str):
    correction = {"reject": reject, "mean_over": over}
    sizes = {"model": {"context_length": 5}, "rollout": {"max_response_tokens": 2}}
    whole, split = (
        make_learner(algorithm={"correction": correction}, optimizer={"micro_batch_tokens": tokens}, **sizes)
        for tokens in (10_000, 5)
    )
    samples = group_of_four(whole)
    samples[1] = replace(samples[1], behaviour_logprobs=[samples[1].behaviour_logprobs[0], FAR])

    expected, actual = whole.update(samples), split.update(samples)

    assert actual == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("reject", ["token", "sequence", "geometric"])
def test_u26_a_batch_of_which_all_is_rejected_moves_nothing_after_one_that_did(make_learner, reject: str):
    """Moments would move the weights: see U27."""
    learner = make_learner(algorithm={"correction": {"reject": reject}})
    samples = group_of_four(learner)
    learner.update(samples)
    before = state(learner)

    metrics = learner.update([replace(sample, behaviour_logprobs=[FAR, FAR]) for sample in samples])

    assert metrics["policy/without_signal"] == 1
    assert equal(before, state(learner))
