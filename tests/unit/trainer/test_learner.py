import json
from collections.abc import Callable
from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path

import pytest
import torch

from configs.algorithm import Algorithm
from configs.learner import Optimizer
from trainer.checkpoint import IncompleteCheckpoint
from trainer.learner import Learner
from trainer.samples import Sample

MakeSamples = Callable[..., list[Sample]]


@pytest.fixture
def make_learner(policy_dir: Path) -> Callable[..., Learner]:
    def make(reference: bool = False, dtype: str = "float32", kl_coefficient: float = 0.0, **optimizer) -> Learner:
        return Learner(
            policy_dir,
            policy_dir if reference else None,
            Algorithm(kl_coefficient=kl_coefficient),
            Optimizer(**{"learning_rate": 1e-3, **optimizer}),
            temperature=1.0,
            dtype=dtype,  # pyright: ignore[reportArgumentType]
            seed=0,
        )

    return make


def weights(learner: Learner) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in learner._policy.parameters()]


def moments(learner: Learner) -> list[torch.Tensor]:
    return [value.clone() for state in learner._adamw.state.values() for value in state.values()]


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_an_update_changes_the_weights_advances_the_version_and_reports_on_it(make_learner, make_samples: MakeSamples):
    learner = make_learner(reference=True)
    before = weights(learner)

    metrics = learner.update(make_samples())

    assert learner.version == 1
    assert not equal(weights(learner), before)
    names = (
        "loss grad_norm entropy kl clip_share clamp_share ratio_mean logprob_gap_mean logprob_gap_max "
        "learning_rate zero_variance_share tokens skipped"
    )
    assert set(metrics) == {f"policy/{name}" for name in names.split()}
    scored = [sample for sample in make_samples() if sample.reward is not None]
    assert metrics["policy/tokens"] == sum(len(sample.response_ids) for sample in scored)
    assert metrics["policy/kl"] == 0.0  # the reference is still the policy itself
    assert metrics["policy/skipped"] == 0.0


def test_updates_raise_the_probability_of_what_was_rewarded(make_learner):
    learner = make_learner(learning_rate=1e-2)
    good, bad = Sample("q", [1], [2], [-4.0], 0, 1.0), Sample("q", [1], [3], [-4.0], 0, 0.0)

    gaps = []
    for _ in range(3):
        learner.update([good, bad])
        tokens = learner._own_share([good, bad], torch.zeros(2), torch.ones(2, dtype=torch.bool))[0].tokens
        logprobs, _ = learner._policy(tokens)
        gaps.append((logprobs[0] - logprobs[1]).item())

    assert gaps[0] < gaps[1] < gaps[2]


def test_the_same_calls_give_the_same_weights_bit_for_bit(make_learner, make_samples: MakeSamples):
    first, second = make_learner(), make_learner()

    for learner in (first, second):
        learner.update(make_samples(seed=1))
        learner.update(make_samples(seed=2))

    assert equal(weights(first), weights(second))


def test_micro_batches_do_not_change_the_update(make_learner, make_samples: MakeSamples):
    whole, split = make_learner(micro_batch_tokens=10_000), make_learner(micro_batch_tokens=10)

    expected, actual = whole.update(make_samples()), split.update(make_samples())

    assert actual == pytest.approx(expected, rel=1e-5)


def test_groups_are_found_by_name_when_samples_come_in_another_order(make_learner, make_samples: MakeSamples):
    ordered, mixed = make_learner(), make_learner()

    expected, actual = ordered.update(make_samples()), mixed.update(make_samples()[::-1])

    assert actual == pytest.approx(expected, rel=1e-5)


def test_an_update_with_a_nan_log_prob_is_skipped_and_counted(make_learner, make_samples: MakeSamples):
    learner = make_learner()
    before = weights(learner)
    samples = make_samples()
    samples[0] = replace(samples[0], behaviour_logprobs=[nan] * len(samples[0].response_ids))

    metrics = learner.update(samples)

    assert metrics["policy/skipped"] == 1.0
    assert isnan(metrics["policy/logprob_gap_max"])
    assert equal(weights(learner), before)
    assert learner.version == 1
    assert learner.update(make_samples())["policy/skipped"] == 0.0


def test_a_gradient_that_is_not_finite_is_skipped(make_learner, make_samples: MakeSamples):
    learner = make_learner()
    next(learner._policy.parameters()).register_hook(lambda gradient: gradient * inf)
    before = weights(learner)

    metrics = learner.update(make_samples())

    assert metrics["policy/skipped"] == 1.0
    assert equal(weights(learner), before)


def test_a_batch_without_any_reward_has_loss_and_gradient_zero(make_learner, make_samples: MakeSamples):
    metrics = make_learner().update([replace(sample, reward=None) for sample in make_samples()])

    assert metrics["policy/loss"] == metrics["policy/grad_norm"] == metrics["policy/tokens"] == 0.0


def test_an_update_without_samples_is_refused(make_learner):
    with pytest.raises(ValueError, match="update to version 1 got no samples"):
        make_learner().update([])


def test_a_kl_coefficient_without_a_reference_is_refused(make_learner):
    with pytest.raises(ValueError, match=r"kl_coefficient is 0\.1, but there is no reference_dir"):
        make_learner(kl_coefficient=0.1)


def test_the_learning_rate_warms_up_and_goes_on_after_a_resume(make_learner, make_samples: MakeSamples, tmp_path: Path):
    learner = make_learner(learning_rate=1.0, warmup_steps=4)
    rates = [learner.update(make_samples())["policy/learning_rate"] for _ in range(3)]
    learner.save_checkpoint(tmp_path / "checkpoint")

    resumed = make_learner(learning_rate=1.0, warmup_steps=4)
    resumed.load_checkpoint(tmp_path / "checkpoint")
    rates += [resumed.update(make_samples())["policy/learning_rate"] for _ in range(2)]

    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_gradients_are_reported_before_they_are_scaled_down(make_learner, make_samples: MakeSamples):
    free, tight = make_learner(max_grad_norm=1e9), make_learner(max_grad_norm=1e-9)

    assert free.update(make_samples())["policy/grad_norm"] == tight.update(make_samples())["policy/grad_norm"] > 1e-3


def test_updates_far_below_bfloat16_s_resolution_are_not_lost(make_learner, make_samples: MakeSamples):
    learner = make_learner(dtype="bfloat16", learning_rate=1e-6)
    norm = learner._policy.model.base_model.norm.weight
    assert norm.tolist() == [1.0] * 16

    for _ in range(10):
        learner.update(make_samples())

    # The next bfloat16 below 1 is 0.996.
    assert 1e-6 < (norm - 1).abs().max().item() < 1e-4


def test_a_resumed_learner_continues_bit_for_bit(make_learner, make_samples: MakeSamples, tmp_path: Path):
    uninterrupted, interrupted, resumed = make_learner(), make_learner(), make_learner()
    for step in range(4):
        uninterrupted.update(make_samples(seed=step))
    for step in range(2):
        interrupted.update(make_samples(seed=step))
    interrupted.save_checkpoint(tmp_path / "checkpoint")

    resumed.load_checkpoint(tmp_path / "checkpoint")
    assert resumed.version == 2
    for step in range(2, 4):
        resumed.update(make_samples(seed=step))

    assert resumed.version == uninterrupted.version == 4
    assert equal(weights(resumed), weights(uninterrupted))
    assert equal(moments(resumed), moments(uninterrupted))


def test_saving_a_checkpoint_does_not_change_what_comes_after(make_learner, make_samples: MakeSamples, tmp_path: Path):
    plain, saving = make_learner(), make_learner()
    saving.save_checkpoint(tmp_path / "checkpoint")

    plain.update(make_samples())
    saving.update(make_samples())

    assert equal(weights(plain), weights(saving))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("pattern", ["*.distcp", ".metadata", "manifest.json"])
@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_an_incomplete_checkpoint_is_refused_and_changes_nothing(
    make_learner, make_samples: MakeSamples, tmp_path: Path, pattern: str, damage: Callable[[Path], None]
):
    learner = make_learner()
    learner.update(make_samples())
    learner.save_checkpoint(tmp_path / "checkpoint")
    damage(next((tmp_path / "checkpoint").glob(pattern)))
    fresh = make_learner()
    before = weights(fresh)

    with pytest.raises(IncompleteCheckpoint, match=r"checkpoint.*load an older checkpoint"):
        fresh.load_checkpoint(tmp_path / "checkpoint")

    assert fresh.version == 0
    assert equal(weights(fresh), before)


def test_a_killed_writer_leaves_no_checkpoint_of_that_name_and_does_not_hinder_the_next(make_learner, tmp_path: Path):
    (tmp_path / ".checkpoint.tmp").mkdir()
    (tmp_path / ".checkpoint.tmp" / "__0_0.distcp").write_bytes(b"half")
    learner = make_learner()

    with pytest.raises(IncompleteCheckpoint, match=r"has no manifest\.json"):
        learner.load_checkpoint(tmp_path / "checkpoint")
    learner.save_checkpoint(tmp_path / "checkpoint")

    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert json.loads((tmp_path / "checkpoint" / "manifest.json").read_text())["version"] == 0


def test_saved_weights_are_a_policy_to_start_from(make_learner, make_samples: MakeSamples, tmp_path: Path):
    learner = make_learner()
    learner.update(make_samples())

    learner.save_weights(tmp_path / "weights")

    reloaded = Learner(tmp_path / "weights", None, Algorithm(), Optimizer(), 1.0, "float32", 0)
    assert equal(weights(reloaded), weights(learner))
