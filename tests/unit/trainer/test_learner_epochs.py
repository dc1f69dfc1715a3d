import pytest

from tests.unit.trainer.learners import LEARNER_IS_OLD, MakeSamples, equal, scored, state
from trainer.batches.collation import collate
from trainer.batches.minibatches import minibatches


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
