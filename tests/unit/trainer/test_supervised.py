from pathlib import Path

import pytest
import torch

from configs.data import ColdStart
from trainer.batches.collation import collate
from trainer.learner import supervised
from trainer.model import policy

SETTINGS = ColdStart(steps=8, batch_size=4, learning_rate=1e-2)
DEMONSTRATIONS = [([1, 2, number], [number, 3]) for number in range(10, 22)]


def test_the_policy_learns_to_imitate_and_reports_on_it(policy_dir: Path, tmp_path: Path):
    short, long = (
        supervised.fit(policy_dir, tmp_path / "out", DEMONSTRATIONS, SETTINGS.model_copy(update={"steps": steps}), 0)
        for steps in (1, 8)
    )

    assert long["loss"] < short["loss"]
    assert long["tokens"] == 8 * 4 * 2
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_only_response_tokens_are_trained(policy_dir: Path, tmp_path: Path):
    settings = ColdStart(steps=1, batch_size=1)

    result = supervised.fit(policy_dir, tmp_path / "out", [([5, 6, 7], [8, 9])], settings, 0)

    logprobs, _ = policy.load(policy_dir, temperature=1.0, dtype="float32")(collate([([5, 6, 7], [8, 9])]))
    assert result["loss"] == pytest.approx(-logprobs.mean().item())


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


def test_the_learning_rate_warms_up_over_a_twentieth_and_falls_along_a_cosine():
    descent = supervised._optimizer_settings(SETTINGS.model_copy(update={"steps": 100}))

    assert (descent.warmup_steps, descent.schedule, descent.final_share) == (5, "cosine", 0.0)


def test_no_demonstrations_are_refused(policy_dir: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="no demonstrations"):
        supervised.fit(policy_dir, tmp_path / "out", [], SETTINGS, 0)


def test_the_global_generator_is_left_alone(policy_dir: Path, tmp_path: Path):
    state = torch.random.get_rng_state()

    supervised.fit(policy_dir, tmp_path / "out", DEMONSTRATIONS, ColdStart(steps=1, batch_size=2), 0)

    assert torch.equal(torch.random.get_rng_state(), state)
