from pathlib import Path

import pytest
import torch

from configs.data import ColdStart
from trainer import policy, supervised
from trainer.batches import collate

SETTINGS = ColdStart(steps=8, batch_size=4, learning_rate=1e-2)
DEMONSTRATIONS = [([1, 2, number], [number, 3]) for number in range(10, 22)]


def test_the_policy_learns_to_imitate_and_reports_on_it(policy_dir: Path, tmp_path: Path):
    losses = []

    result = supervised.fit(
        policy_dir,
        tmp_path / "out",
        DEMONSTRATIONS,
        SETTINGS,
        0,
        on_step=lambda step, loss: losses.append((step, loss)),
    )

    assert [step for step, _ in losses] == list(range(1, 9))
    assert losses[-1][1] < losses[0][1]
    assert result == {"loss": losses[-1][1], "tokens": 8 * 4 * 2}
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_only_response_tokens_are_trained(policy_dir: Path, tmp_path: Path):
    losses = []
    settings = ColdStart(steps=1, batch_size=1)

    supervised.fit(
        policy_dir, tmp_path / "out", [([5, 6, 7], [8, 9])], settings, 0, on_step=lambda _, loss: losses.append(loss)
    )

    logprobs, _ = policy.load(policy_dir, temperature=1.0, dtype="float32")(collate([([5, 6, 7], [8, 9])]))
    assert losses == [pytest.approx(-logprobs.mean().item())]


def test_the_same_seed_gives_the_same_weights_and_another_seed_other_ones(policy_dir: Path, tmp_path: Path):
    for name, seed in (("first", 0), ("second", 0), ("other", 1)):
        supervised.fit(policy_dir, tmp_path / name, DEMONSTRATIONS, SETTINGS, seed)

    first, second, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second", "other")
    )
    assert first == second
    assert first != other


def test_every_demonstration_is_seen_before_any_is_seen_again():
    order = supervised._shuffled_for_ever(5, seed=0)

    first, second = ([next(order) for _ in range(5)] for _ in range(2))

    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second


def test_the_learning_rate_warms_up_and_falls_to_zero_along_a_cosine():
    rates = [supervised._schedule(step, 100) for step in range(1, 101)]

    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] == pytest.approx(0.0)


def test_no_demonstrations_are_refused(policy_dir: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="no demonstrations"):
        supervised.fit(policy_dir, tmp_path / "out", [], SETTINGS, 0)


def test_the_global_generator_is_left_alone(policy_dir: Path, tmp_path: Path):
    state = torch.random.get_rng_state()

    supervised.fit(policy_dir, tmp_path / "out", DEMONSTRATIONS, ColdStart(steps=1, batch_size=2), 0)

    assert torch.equal(torch.random.get_rng_state(), state)
