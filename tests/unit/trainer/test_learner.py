from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.unit.trainer.learners import KL, LEARNER_IS_OLD, MakeSamples, equal, scored, state
from trainer.batches.collation import collate
from trainer.batches.samples import Sample
from trainer.learner.optimizer import TrainingDiverged

# An update


def test_an_update_changes_the_weights_advances_the_version_and_reports_on_it(make_learner, make_samples: MakeSamples):
    learner = make_learner(algorithm=KL)
    before = state(learner)

    metrics = learner.update(make_samples())

    assert learner.version == 1
    assert not equal(state(learner), before)
    names = "loss grad_norm entropy kl clip_share ratio_mean logprob_gap_max learning_rate zero_variance_share tokens"
    assert set(metrics) >= {f"policy/{name}" for name in names.split()}
    assert metrics["policy/tokens"] == sum(len(sample.response_ids) for sample in scored(make_samples()))
    assert metrics["policy/kl"] == 0.0  # the reference is still the policy itself
    assert metrics["policy/skipped"] == 0.0


def test_updates_raise_the_probability_of_what_was_rewarded(make_learner):
    learner = make_learner(optimizer={"learning_rate": 1e-2})
    good, bad = Sample("q", [1], [2], [-4.0], 0, 1.0), Sample("q", [1], [3], [-4.0], 0, 0.0)

    gaps = []
    for _ in range(3):
        learner.update([good, bad])
        logprobs, _ = learner._policy(collate([([1], [2]), ([1], [3])]))
        gaps.append((logprobs[0] - logprobs[1]).item())

    assert gaps[0] < gaps[1] < gaps[2]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bandit_is_solved_and_the_reward_s_sign_decides_which_way(make_learner, coin_dir: Path, sign: int):
    learner = make_learner(start=coin_dir, optimizer={"learning_rate": 0.1})
    generator = torch.Generator().manual_seed(0)

    def probabilities() -> Tensor:
        logprobs, _ = learner._policy(collate([([2], [arm]) for arm in range(4)]))
        return logprobs[:, 0].detach().exp()

    assert probabilities().tolist() == pytest.approx([0.25] * 4)
    for _ in range(50):
        p = probabilities()
        arms = torch.multinomial(p, 8, replacement=True, generator=generator).tolist()
        metrics = learner.update(
            [Sample("q", [2], [arm], [p[arm].log().item()], learner.version, sign * float(arm == 1)) for arm in arms]
        )
        assert metrics["policy/skipped"] == 0.0

    assert probabilities()[1] > 0.9 if sign == 1 else probabilities()[1] < 0.1


def test_the_same_calls_give_the_same_weights_bit_for_bit(make_learner, make_samples: MakeSamples):
    first, second = make_learner(), make_learner()

    for learner in (first, second):
        learner.update(make_samples(seed=1))
        learner.update(make_samples(seed=2))

    assert equal(state(first), state(second))


def test_deterministic_operations_are_enough(make_learner, make_samples: MakeSamples):
    usual, strict = (make_learner(algorithm={"advantage": "gae", **LEARNER_IS_OLD}) for _ in range(2))
    usual.update(make_samples())

    torch.use_deterministic_algorithms(True)
    try:
        strict.update(make_samples())
    finally:
        torch.use_deterministic_algorithms(False)

    assert equal(state(usual), state(strict))


def test_micro_batches_do_not_change_the_update(make_learner, make_samples: MakeSamples):
    sizes = {"model": {"context_length": 12}, "rollout": {"max_response_tokens": 7}}
    whole, split = (make_learner(optimizer={"micro_batch_tokens": tokens}, **sizes) for tokens in (10_000, 12))

    expected, actual = whole.update(make_samples()), split.update(make_samples())

    assert actual == pytest.approx(expected, rel=1e-5)


def test_groups_are_found_by_name_when_samples_come_in_another_order(make_learner, make_samples: MakeSamples):
    ordered, mixed = make_learner(), make_learner()

    expected, actual = ordered.update(make_samples()), mixed.update(make_samples()[::-1])

    assert actual == pytest.approx(expected, rel=1e-5)


def test_an_update_without_samples_is_refused(make_learner):
    with pytest.raises(ValueError, match="update to version 1 got no samples"):
        make_learner().update([])


def test_a_batch_without_any_reward_has_loss_and_gradient_zero(make_learner, make_samples: MakeSamples):
    learner = make_learner()
    before = state(learner)

    metrics = learner.update([replace(sample, reward=None) for sample in make_samples()])

    assert metrics["policy/loss"] == metrics["policy/grad_norm"] == metrics["policy/tokens"] == 0.0
    assert all(torch.equal(value, before[name]) for name, value in state(learner).items() if not name.endswith("step"))
    assert learner.version == 1


def test_stale_and_truncated_samples_reach_the_filters(make_learner, make_samples: MakeSamples):
    learner = make_learner(algorithm={"filters": {"max_lag": 0, "truncated": "mask"}})
    samples = scored(make_samples())
    samples[0] = replace(samples[0], weights_version=-1)
    samples[1] = replace(samples[1], truncated=True)

    metrics = learner.update(samples)

    assert metrics["policy/filtered_stale"] == metrics["policy/filtered_truncated"] == 1.0
    assert metrics["policy/tokens"] == sum(len(sample.response_ids) for sample in samples[2:])


# U27: a step without signal


NOTHING_TO_LEARN = {
    "all the same reward": lambda sample: replace(sample, reward=1.0, accuracy=1.0),
    "all unscored": lambda sample: replace(sample, reward=None, accuracy=None),
    "all wrong": lambda sample: replace(sample, reward=0.0, accuracy=0.0),
    "all truncated and masked": lambda sample: replace(sample, truncated=True),
}


@pytest.mark.parametrize("change", NOTHING_TO_LEARN.values(), ids=NOTHING_TO_LEARN)
def test_u27_a_step_without_signal_moves_nothing_though_there_are_moments(
    make_learner, make_samples: MakeSamples, change
):
    learner = make_learner(algorithm={"filters": {"truncated": "mask"}}, optimizer={"weight_decay": 0.1})
    first = learner.update(make_samples())
    before = state(learner)

    metrics = learner.update([change(sample) for sample in make_samples()])

    assert equal(state(learner), before)
    assert (first["policy/without_signal"], metrics["policy/without_signal"]) == (0.0, 1.0)
    assert metrics["policy/skipped"] == 0.0
    assert learner.version == 2


def test_u27_a_kl_in_the_loss_is_a_signal(make_learner, make_samples: MakeSamples):
    learner = make_learner(algorithm=KL)
    learner.update(make_samples())
    before = state(learner)

    metrics = learner.update([replace(sample, reward=1.0, accuracy=1.0) for sample in make_samples()])

    assert metrics["policy/without_signal"] == 0.0
    assert not equal(state(learner), before)


def test_u27_each_epoch_without_signal_counts(make_learner, make_samples: MakeSamples):
    learner = make_learner(optimizer={"epochs": 3})

    same = [replace(sample, reward=0.5, accuracy=0.5) for sample in make_samples()]
    assert learner.update(same)["policy/without_signal"] == 3.0


# What is not finite


def test_an_update_with_a_nan_log_prob_is_skipped_and_counted(make_learner, make_samples: MakeSamples):
    learner = make_learner()
    before = state(learner)
    samples = make_samples()
    samples[0] = replace(samples[0], behaviour_logprobs=[nan] * len(samples[0].response_ids))

    metrics = learner.update(samples)

    assert metrics["policy/skipped"] == 1.0
    assert isnan(metrics["policy/logprob_gap_max"])
    after = state(learner)
    assert after.pop("policy.skipped_in_a_row") == 1 and before.pop("policy.skipped_in_a_row") == 0
    assert equal(after, before)
    assert learner.version == 1
    assert learner.update(make_samples())["policy/skipped"] == 0.0


def test_a_gradient_that_is_not_finite_is_skipped_in_each_epoch(make_learner, make_samples: MakeSamples):
    learner = make_learner(optimizer={"epochs": 2})
    next(learner._policy.parameters()).register_hook(lambda gradient: gradient * inf)

    assert learner.update(make_samples())["policy/skipped"] == 2.0


def test_the_limit_of_skipped_steps_holds_across_a_resume(make_learner, make_samples: MakeSamples, tmp_path: Path):
    samples = [replace(sample, behaviour_logprobs=[nan] * len(sample.response_ids)) for sample in make_samples()]
    learner, resumed = (make_learner(optimizer={"max_skipped": 2}) for _ in range(2))
    learner.update(samples)
    learner.save_checkpoint(tmp_path / "checkpoint", "r")
    resumed.load_checkpoint(tmp_path / "checkpoint", "r")

    for each in (learner, resumed):
        with pytest.raises(TrainingDiverged, match="2 optimizer steps in a row"):
            each.update(samples)


# Precision and memory


def test_a_bfloat16_forward_pass_trains_float32_weights(make_learner, make_samples: MakeSamples):
    learner = make_learner(model={"dtype": "bfloat16"}, optimizer={"learning_rate": 1e-6})
    norm = learner._policy.model.base_model.norm.weight

    for _ in range(10):
        learner.update(make_samples())

    # The next bfloat16 below 1 is 0.996.
    assert 1e-6 < (norm - 1).abs().max().item() < 1e-4


def test_gradient_checkpointing_computes_layers_twice_and_the_same_weights(make_learner, make_samples: MakeSamples):
    plain, saving = make_learner(), make_learner(learner={"gradient_checkpointing": True})
    calls = {"plain": 0, "saving": 0}
    for name, learner in (("plain", plain), ("saving", saving)):

        def count(*_, name: str = name) -> None:
            calls[name] += 1

        learner._policy.model.base_model.layers[0].mlp.register_forward_pre_hook(count)

    plain.update(make_samples())
    saving.update(make_samples())

    assert calls == {"plain": 1, "saving": 2}
    assert equal(state(plain), state(saving))
