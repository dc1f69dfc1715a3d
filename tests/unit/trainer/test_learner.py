from collections.abc import Callable
from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from trainer import policy
from trainer.batches import collate
from trainer.checkpoint import IncompleteCheckpoint
from trainer.descent import TrainingDiverged
from trainer.learner import Learner
from trainer.minibatches import minibatches
from trainer.samples import Sample

MakeSamples = Callable[..., list[Sample]]
KL = {"kl": {"coefficient": 0.1}}
LEARNER_IS_OLD = {"old_policy": "learner"}


def state(learner: Learner) -> dict[str, Tensor]:
    """A copy of all that is trained, and of its optimizers."""
    return {name: value.clone() for name, value in learner._state().items()}


def equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def scored(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.reward is not None]


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
    whole, split = (make_learner(optimizer={"micro_batch_tokens": tokens}) for tokens in (10_000, 10))

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


# Epochs and minibatches


def test_the_first_step_has_ratio_one_and_later_epochs_the_log_probs_from_before(
    make_learner, make_samples: MakeSamples
):
    one, two = (make_learner(algorithm=LEARNER_IS_OLD, optimizer={"epochs": epochs}) for epochs in (1, 2))
    samples = scored(make_samples())
    sequences = [(sample.prompt_ids, sample.response_ids) for sample in samples]
    tokens = collate(sequences)
    old = one._policy(tokens)[0].detach()

    first, both = one.update(samples), two.update(samples)

    assert first["policy/ratio_mean"] == 1.0
    assert first["policy/clip_share"] == 0.0
    after_first = one._policy(tokens)[0].detach()  # what the second epoch starts from
    second_ratio = (after_first - old)[tokens.response_mask].exp().mean().item()
    assert second_ratio != 1.0
    assert both["policy/ratio_mean"] == pytest.approx((1.0 + second_ratio) / 2, abs=1e-6)


def test_a_minibatch_is_an_optimizer_batch_of_its_own(make_learner, make_samples: MakeSamples):
    samples = make_samples(groups=4)
    together, apart = make_learner(optimizer={"minibatches": 2}), make_learner()

    groups = [sample.group for sample in samples]
    orders = [minibatches(groups, epochs=1, count=2, seed=0, version=version) for version in (0, 1)]

    for order in orders:
        together.update(samples)
        for rows in order:
            apart.update([samples[row] for row in rows])

    assert orders[0] != orders[1]
    assert equal(state(together), state(apart))
    assert (together.version, apart.version) == (2, 4)


def test_all_steps_of_an_update_have_the_learning_rate_of_its_version(make_learner, make_samples: MakeSamples):
    learner = make_learner(optimizer={"learning_rate": 1.0, "warmup_steps": 4, "epochs": 2, "minibatches": 3})

    assert [learner.update(make_samples())["policy/learning_rate"] for _ in range(2)] == [0.25, 0.5]


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
    learner.save_checkpoint(tmp_path / "checkpoint")
    resumed.load_checkpoint(tmp_path / "checkpoint")

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


# The reference


def reference_is_the_start(learner: Learner, policy_dir: Path) -> bool:
    start = policy.load(policy_dir, temperature=1.0, dtype="float32").state_dict()
    assert learner._reference is not None
    return equal(learner._reference.state_dict(), start)


def test_the_reference_stays_the_policy_that_the_run_started_from_after_a_resume(
    make_learner, make_samples: MakeSamples, policy_dir: Path, tmp_path: Path
):
    learner, resumed = make_learner(algorithm=KL), make_learner(algorithm=KL)
    for step in range(2):
        learner.update(make_samples(seed=step))
    learner.save_checkpoint(tmp_path / "checkpoint")
    resumed.load_checkpoint(tmp_path / "checkpoint")

    before, after = (each.update(make_samples(seed=2))["policy/kl"] for each in (learner, resumed))

    assert after == before > 0.0
    assert reference_is_the_start(resumed, policy_dir)


@pytest.mark.parametrize(("settings", "there"), [({}, False), (KL, True)])
def test_there_is_a_reference_only_where_it_is_needed(
    make_learner, make_samples: MakeSamples, settings: dict, there: bool
):
    learner = make_learner(algorithm=settings)

    assert (learner._reference is not None) == there
    assert ("policy/kl" in learner.update(make_samples())) == there


def test_a_kl_in_the_reward_goes_by_the_reference_too(make_learner, make_samples: MakeSamples):
    algorithm = {"advantage": "rloo", "kl": {"coefficient": 0.5, "place": "reward", "estimator": "k1"}}
    with_kl, without = make_learner(algorithm=algorithm), make_learner(algorithm={"advantage": "rloo"})

    for learner in (with_kl, without):
        learner.update(make_samples())

    assert not equal(state(with_kl), state(without))


# Saving


SETTINGS = [
    {},
    {"algorithm": {"advantage": "gae"}},
    {"learner": {"lora": {"rank": 2}}},
    {"optimizer": {"epochs": 2, "minibatches": 2, "schedule": "cosine", "warmup_steps": 2}},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "critic", "lora", "minibatches"])
def test_a_resumed_learner_continues_bit_for_bit(
    make_learner, make_samples: MakeSamples, tmp_path: Path, settings: dict
):
    uninterrupted, interrupted, resumed = (make_learner(**settings) for _ in range(3))
    rates = [uninterrupted.update(make_samples(seed=step))["policy/learning_rate"] for step in range(4)]
    for step in range(2):
        interrupted.update(make_samples(seed=step))
    interrupted.save_checkpoint(tmp_path / "checkpoint")

    resumed.load_checkpoint(tmp_path / "checkpoint")
    assert resumed.version == 2
    assert equal(state(resumed), state(interrupted))
    later = [resumed.update(make_samples(seed=step))["policy/learning_rate"] for step in range(2, 4)]

    assert later == rates[2:]
    assert resumed.version == uninterrupted.version == 4
    assert equal(state(resumed), state(uninterrupted))


def test_the_learning_rate_goes_on_after_a_resume(make_learner, make_samples: MakeSamples, tmp_path: Path):
    sections = {"steps": 10, "optimizer": {"learning_rate": 1.0, "warmup_steps": 4, "schedule": "linear"}}
    learner, resumed = make_learner(**sections), make_learner(**sections)
    rates = [learner.update(make_samples())["policy/learning_rate"] for _ in range(4)]
    learner.save_checkpoint(tmp_path / "checkpoint")

    resumed.load_checkpoint(tmp_path / "checkpoint")
    rates += [resumed.update(make_samples())["policy/learning_rate"] for _ in range(4)]

    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6])


def test_saving_does_not_change_what_comes_after(make_learner, make_samples: MakeSamples, tmp_path: Path):
    plain, saving = make_learner(), make_learner()
    saving.save_checkpoint(tmp_path / "checkpoint")
    saving.save_weights(tmp_path / "weights")

    plain.update(make_samples())
    saving.update(make_samples())

    assert equal(state(plain), state(saving))


def test_a_learner_is_as_before_after_a_damaged_checkpoint(make_learner, make_samples: MakeSamples, tmp_path: Path):
    learner, fresh = make_learner(), make_learner()
    learner.update(make_samples())
    learner.save_checkpoint(tmp_path / "checkpoint")
    next((tmp_path / "checkpoint").glob("*.distcp")).write_bytes(b"")
    before = state(fresh)

    with pytest.raises(IncompleteCheckpoint):
        fresh.load_checkpoint(tmp_path / "checkpoint")

    assert fresh.version == 0
    assert equal(state(fresh), before)


def test_saved_weights_are_a_policy_to_start_from_and_tied_ones_stay_one(
    make_learner, make_samples: MakeSamples, tmp_path: Path
):
    learner = make_learner()
    learner.update(make_samples())

    learner.save_weights(tmp_path / "weights")

    reloaded = policy.load(tmp_path / "weights", temperature=1.0, dtype="float32")
    assert equal(reloaded.state_dict(), learner._policy.state_dict())
    tied = [reloaded.model.get_parameter(name) for name in ("lm_head.weight", "model.embed_tokens.weight")]
    assert tied[0] is tied[1]
    assert "lm_head.weight" not in load_file(tmp_path / "weights" / "model.safetensors")  # the engine ties them too
