from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.unit.trainer.learners import KL, MakeSamples, equal, state
from trainer.learner.learner import Learner
from trainer.model import policy
from trainer.state.checkpoint import IncompleteCheckpoint

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
    learner.save_checkpoint(tmp_path / "checkpoint", "r")
    resumed.load_checkpoint(tmp_path / "checkpoint", "r")

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
    interrupted.save_checkpoint(tmp_path / "checkpoint", "r")

    resumed.load_checkpoint(tmp_path / "checkpoint", "r")
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
    learner.save_checkpoint(tmp_path / "checkpoint", "r")

    resumed.load_checkpoint(tmp_path / "checkpoint", "r")
    rates += [resumed.update(make_samples())["policy/learning_rate"] for _ in range(4)]

    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6])


def test_saving_does_not_change_what_comes_after(make_learner, make_samples: MakeSamples, tmp_path: Path):
    plain, saving = make_learner(), make_learner()
    saving.save_checkpoint(tmp_path / "checkpoint", "r")
    saving.save_weights(tmp_path / "weights")

    plain.update(make_samples())
    saving.update(make_samples())

    assert equal(state(plain), state(saving))


def test_a_learner_is_as_before_after_a_damaged_checkpoint(make_learner, make_samples: MakeSamples, tmp_path: Path):
    learner, fresh = make_learner(), make_learner()
    learner.update(make_samples())
    learner.save_checkpoint(tmp_path / "checkpoint", "r")
    next((tmp_path / "checkpoint").glob("*.distcp")).write_bytes(b"")
    before = state(fresh)

    with pytest.raises(IncompleteCheckpoint):
        fresh.load_checkpoint(tmp_path / "checkpoint", "r")

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
