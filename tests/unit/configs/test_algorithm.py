from typing import Any

import pytest
from pydantic import ValidationError

from configs.algorithm import Algorithm
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
        ({"filters": {"overlong_buffer": 4}, "advantage": "maxrl"}, "without a punishment or KL"),
        ({"filters": {"overlong_buffer": 4}, "advantage": "accepted"}, "overlong_buffer has no effect"),
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


def test_a_punishment_of_every_response_is_refused():
    with pytest.raises(ValidationError, match="every response would be punished"):
        recipe(rollout={"max_response_tokens": 16}, algorithm={"filters": {"overlong_buffer": 17}})


def test_a_length_that_would_be_punished_twice_is_refused():
    overlong = {"parts": {"length": {"kind": "overlong", "max_tokens": 16, "buffer": 4}}}

    with pytest.raises(ValidationError, match="punish length twice"):
        recipe(rollout={"max_response_tokens": 16}, algorithm={"filters": {"overlong_buffer": 4}}, reward=overlong)


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
