from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from trainer.batches.collation import collate
from trainer.batches.samples import Sample
from trainer.model import policy
from trainer.model.critic import Critic

GAE = {"advantage": "gae"}
MakeSamples = Callable[..., list[Sample]]


@pytest.fixture
def critic(policy_dir: Path) -> Critic:
    return Critic(policy.load(policy_dir, temperature=1.0, dtype="float32"))


def test_a_fresh_critic_says_zero_everywhere(critic: Critic):
    assert critic(collate([([1, 2], [3, 4]), ([5], [6])])).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_value_is_read_off_the_state_before_its_token(critic: Critic, policy_dir: Path):
    with torch.no_grad():
        critic.head.weight.copy_(torch.linspace(-1, 1, 16)[None])
        critic.head.bias.fill_(0.5)
    prompt, response = [1, 2, 3], [4, 5]

    values = critic(collate([(prompt, response)]))

    model = AutoModelForCausalLM.from_pretrained(policy_dir).eval()
    states = model.model(torch.tensor([prompt + response])).last_hidden_state[0]
    expected = states @ torch.linspace(-1, 1, 16) + 0.5
    assert torch.allclose(values[0], expected[2:4], atol=1e-4)


def test_values_are_zero_on_padding_and_have_a_gradient(critic: Critic):
    with torch.no_grad():
        critic.head.bias.fill_(0.5)

    values = critic(collate([([1, 2], [3, 4, 5]), ([5], [6])]))
    values.sum().backward()

    assert values.tolist() == [[0.5, 0.5, 0.5], [0.5, 0.0, 0.0]]
    assert critic.head.bias.grad is not None and critic.head.bias.grad.item() == 4.0


def test_an_output_layer_of_its_own_is_not_trained(coin_dir: Path):
    critic = Critic(policy.load(coin_dir, temperature=1.0, dtype="float32"))

    assert [name for name, weight in critic.named_parameters() if not weight.requires_grad] == [
        "backbone.model.lm_head.weight"
    ]


# In the learner


def test_the_critic_learns_what_rewards_to_expect(make_learner, make_samples: MakeSamples):
    learner = make_learner(algorithm=GAE, critic={"learning_rate": 1e-2})

    reports = [learner.update(make_samples()) for _ in range(30)]

    assert reports[0]["critic/value"] == 0.0  # values before the first update
    assert reports[-1]["critic/value_loss"] < 0.5 * reports[0]["critic/value_loss"]
    assert reports[-1]["critic/value"] == pytest.approx(reports[-1]["critic/return"], abs=0.2)
    assert {"critic/grad_norm", "critic/learning_rate", "critic/skipped", "critic/value_clip_share"} <= set(reports[0])


def test_the_critic_has_a_learning_rate_of_its_own(make_learner, make_samples: MakeSamples):
    learner = make_learner(algorithm=GAE, optimizer={"learning_rate": 1e-3}, critic={"learning_rate": 1e-2})

    metrics = learner.update(make_samples())

    assert (metrics["policy/learning_rate"], metrics["critic/learning_rate"]) == (1e-3, 1e-2)


def test_policy_and_critic_share_no_weights(make_learner, make_samples: MakeSamples):
    learner = make_learner(algorithm=GAE)
    backbone = learner._critic.backbone

    learner.update(make_samples())

    policy_weights = {weight.data_ptr() for weight in learner._policy.parameters()}
    assert not policy_weights & {weight.data_ptr() for weight in backbone.parameters()}


def test_epochs_clip_values_to_those_before_the_first(make_learner, make_samples: MakeSamples):
    algorithm = {**GAE, "gae": {"value_clip": 1e-6}}
    learner = make_learner(algorithm=algorithm, optimizer={"epochs": 2}, critic={"learning_rate": 1e-2})

    # In the first epoch no value has moved; in the second all have, by far more than 1e-6, towards or past targets.
    assert 0.0 < learner.update(make_samples())["critic/value_clip_share"] <= 0.5


def test_without_gae_there_is_no_critic(make_learner, make_samples: MakeSamples):
    metrics = make_learner().update(make_samples())

    assert not any(name.startswith("critic/") for name in metrics)
