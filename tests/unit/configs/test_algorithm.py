from typing import Any

import pytest
from pydantic import ValidationError

from configs.algorithm import Algorithm, Correction
from configs.schema import Recipe


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dual_clip": 1.0}, "greater than 1"),
        ({"clip_low": 1.5}, "less than or equal to 1"),
        ({"clip_high": 0.0}, "greater than 0"),
        ({"dual_clip": 3.0, "loss": "gspo"}, "dual_clip has no effect with loss gspo"),
        ({"clip_high": 0.2, "loss": "policy_gradient"}, "clip_high has no effect with loss policy_gradient"),
        ({"sapo": {"temperature_positive": 2}}, "sapo has no effect with loss clip"),
        ({"dppo": {"threshold": 0.2}}, "dppo has no effect with loss clip"),
        ({"gae": {"smoothing": 1.0}}, "gae has no effect with loss clip and advantage grpo"),
        ({"advantage": "distillation"}, "distillation and a teacher need each other"),
        ({"teacher": "big"}, "distillation and a teacher need each other"),
        ({"loss": "sft"}, "loss sft imitates: it needs advantage accepted"),
        ({"correction": {"weight": "token"}}, "would count twice.*set old_policy to learner"),
        ({"correction": {"weight_range": [0, 0.5]}}, "weight_range is .* must hold 1"),
        ({"correction": {"reject_range": [2, 0.5]}}, "reject_range is .* must hold 1"),
        ({"kl": {"coefficient": 0.1, "estimator": "k1"}}, "k1 in the loss has a gradient of mean 0"),
        ({"kl": {"coefficient": 0.1, "estimator": "k2", "unbiased_gradient": True}}, "wrong for k2"),
        ({"kl": {"place": "reward", "unbiased_gradient": True}}, "in the reward there is no gradient"),
        ({"kl": {"coefficient": 0.1, "place": "reward"}, "advantage": "accepted"}, "reads no rewards"),
        ({"kl": {"coefficient": 0.1, "place": "reward"}, "advantage": "maxrl"}, "needs rewards without a KL"),
        ({"filters": {"max_lag": -1}}, "greater than or equal to 0"),
    ],
)
def test_a_setting_that_can_not_work_is_refused_with_the_reason(settings: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Algorithm.model_validate(settings)


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "maxrl"])
def test_a_group_of_one_is_refused_with_a_baseline_of_the_group(advantage: str):
    with pytest.raises(ValidationError, match="a group of one tells nothing"):
        recipe(rollout={"samples_per_prompt": 1}, algorithm={"advantage": advantage})


@pytest.mark.parametrize("advantage", ["reinforce_pp", "batch_normalised", "gae", "accepted"])
def test_a_group_of_one_will_do_without(advantage: str):
    assert recipe(rollout={"samples_per_prompt": 1}, algorithm={"advantage": advantage})


def test_a_group_of_one_is_refused_with_filters_that_compare():
    with pytest.raises(ValidationError, match="a group of one tells nothing"):
        recipe(
            rollout={"samples_per_prompt": 1},
            algorithm={"advantage": "reinforce_pp", "dynamic_sampling": {"max_rounds": 3}},
        )


def test_a_punishment_of_lengths_that_no_response_reaches_is_refused():
    overlong = {"parts": {"length": {"kind": "overlong", "max_tokens": 24, "buffer": 8}}}

    assert recipe(rollout={"max_response_tokens": 17}, reward=overlong)
    with pytest.raises(ValidationError, match=r"reward\.parts\.length begins to punish above 16 tokens"):
        recipe(rollout={"max_response_tokens": 16}, reward=overlong)


@pytest.mark.parametrize(
    "punishing",
    [
        {"parts": {"repeats": "repetition"}},
        {"parts": {"length": {"kind": "overlong", "max_tokens": 16, "buffer": 4}}},
        {"parts": {"length": {"kind": "cosine", "max_tokens": 16}}},
        {"parts": {"form": {"kind": "format", "weight": -0.5}}},
    ],
)
def test_maxrl_is_refused_with_rewards_below_zero(punishing: dict[str, Any]):
    maxrl = {"advantage": "maxrl"}

    mild = {"kind": "cosine", "max_tokens": 16, "wrong": [0, 0], "exceeding": 0}
    assert recipe(algorithm=maxrl, reward={"parts": {"form": "format", "length": mild}})
    with pytest.raises(ValidationError, match="maxrl divides by the mean reward, but reward may be below 0"):
        recipe(algorithm=maxrl, reward=punishing)


@pytest.mark.parametrize("temperature", [0.0, -0.1])
def test_a_training_temperature_that_is_not_positive_is_refused(temperature: float):
    with pytest.raises(ValidationError, match="greater than 0"):
        recipe(rollout={"temperature": temperature})


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 5}])
def test_sampling_from_a_part_of_the_vocabulary_is_not_offered(cut: dict[str, Any]):
    """The learner's log-probs are over the whole vocabulary: the ratio would be wrong."""
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        recipe(rollout=cut)


def test_no_reference_is_needed_without_a_kl():
    assert not Algorithm().needs_reference
    assert Algorithm.model_validate({"kl": {"coefficient": 0.1}}).needs_reference


def recipe(**sections: Any) -> Recipe:
    return Recipe.model_validate({"name": "test", **sections})


# U36, U37


@pytest.mark.parametrize(
    "more", [{}, {"dppo": {"divergence": "kl", "threshold": 0.05}}, {"correction": {"weight": "token"}}]
)
def test_u36_a_trust_region_around_another_policy_than_the_one_that_sampled_is_refused(more: dict[str, Any]):
    settings = {"loss": "dppo", "old_policy": "learner", **more}

    with pytest.raises(ValidationError, match="dppo has its trust region around the policy that sampled"):
        Algorithm.model_validate(settings)
    assert Algorithm(loss="dppo").old_policy == "behaviour"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reject": "geometric"}, (0.99, 1.01)),
        ({"reject": "geometric", "reject_range": (0.9, 1.1)}, (0.9, 1.1)),
        ({"reject": "geometric", "reject_range": (0.5, 2.0)}, (0.5, 2.0)),
        ({"reject": "token"}, (0.5, 2.0)),
        ({"reject": "sequence"}, (0.5, 2.0)),
        ({}, (0.5, 2.0)),
    ],
)
def test_u37_the_range_that_is_left_out_suits_what_is_rejected(settings: dict[str, Any], expected: tuple[float, float]):
    stored = Correction.model_validate(settings).model_dump(mode="json")

    assert Correction.model_validate(stored).reject_range == expected
