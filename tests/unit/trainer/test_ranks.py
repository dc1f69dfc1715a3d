from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.multiprocessing.spawn import spawn

from configs.schema import Recipe
from trainer.learner import Learner
from trainer.samples import Sample

# Small micro-batches, so that the ranks have several of them, and not equally many: 11 samples.
OPTIMIZER = {"learning_rate": 1e-3, "micro_batch_tokens": 30}
KL = {"kl": {"coefficient": 0.1}}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"algorithm": KL},
    "adapters": {
        "algorithm": {**KL, "filters": {"zero_variance": True}},
        "optimizer": {**OPTIMIZER, "epochs": 2, "minibatches": 2},
        "learner": {"lora": {"rank": 2}, "gradient_checkpointing": True},
    },
    "critic": {"algorithm": {"advantage": "gae", "old_policy": "learner"}},
}


def make_learner(policy_dir: Path, name: str) -> Learner:
    return Learner(Recipe(name="test", **{"optimizer": OPTIMIZER, **SETTINGS[name]}), policy_dir)


def train(policy_dir: Path, name: str, out: Path, samples: list[Sample]) -> list[dict[str, float]]:
    learner = make_learner(policy_dir, name)
    metrics = [learner.update(samples), learner.update(samples)]
    learner.save_weights(out / name / "weights")
    learner.save_checkpoint(out / name / "checkpoint")
    return metrics


def rank_main(rank: int, policy_dir: Path, out: Path, samples: list[Sample]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    metrics = {name: train(policy_dir, name, out, samples) for name in SETTINGS}
    torch.save(metrics, out / f"metrics-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def samples(make_samples: Callable[..., list[Sample]]) -> list[Sample]:
    return make_samples()[:11]


@pytest.fixture(scope="module")
def two_ranks(policy_dir: Path, samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two-ranks")
    spawn(rank_main, (policy_dir, out, samples), nprocs=2)
    return out


@pytest.mark.parametrize("name", SETTINGS)
def test_two_ranks_report_and_update_as_one_does(
    policy_dir: Path, samples: list[Sample], two_ranks: Path, tmp_path: Path, name: str
):
    expected = train(policy_dir, name, tmp_path, samples)

    for rank in (0, 1):
        metrics = torch.load(two_ranks / f"metrics-{rank}.pt", weights_only=True)[name]
        assert metrics[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-6)
        assert metrics[1] == pytest.approx(expected[1], rel=1e-4, abs=1e-5)
    one = load_file(tmp_path / name / "weights" / "model.safetensors")
    two = load_file(two_ranks / name / "weights" / "model.safetensors")
    assert two.keys() == one.keys()
    for weight in one:
        assert (two[weight] - one[weight]).norm() / one[weight].norm() < 1e-5, weight


@pytest.mark.parametrize("name", SETTINGS)
def test_a_checkpoint_of_two_ranks_loads_into_one(policy_dir: Path, two_ranks: Path, tmp_path: Path, name: str):
    learner = make_learner(policy_dir, name)

    learner.load_checkpoint(two_ranks / name / "checkpoint")
    learner.save_weights(tmp_path / "weights")

    assert learner.version == 2
    saved = load_file(two_ranks / name / "weights" / "model.safetensors")
    for weight, value in load_file(tmp_path / "weights" / "model.safetensors").items():
        assert torch.equal(value, saved[weight]), weight
