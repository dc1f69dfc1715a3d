from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.multiprocessing.spawn import spawn

from configs.algorithm import Algorithm
from configs.learner import Optimizer
from trainer.learner import Learner
from trainer.samples import Sample

# Small micro-batches, so that the ranks have several of them, and not equally many: 11 samples.
OPTIMIZER = Optimizer(learning_rate=1e-3, micro_batch_tokens=20)
ALGORITHM = Algorithm(kl_coefficient=0.1)


def train(policy_dir: Path, out: Path, samples: list[Sample]) -> list[dict[str, float]]:
    learner = Learner(policy_dir, policy_dir, ALGORITHM, OPTIMIZER, 1.0, "float32", seed=0)
    metrics = [learner.update(samples), learner.update(samples)]
    learner.save_weights(out / "weights")
    learner.save_checkpoint(out / "checkpoint")
    return metrics


def rank_main(rank: int, policy_dir: Path, out: Path, samples: list[Sample]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    metrics = train(policy_dir, out, samples)
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


def test_two_ranks_report_and_update_as_one_does(
    policy_dir: Path, samples: list[Sample], two_ranks: Path, tmp_path: Path
):
    expected = train(policy_dir, tmp_path, samples)

    for rank in (0, 1):
        metrics = torch.load(two_ranks / f"metrics-{rank}.pt", weights_only=True)
        assert metrics[0] == pytest.approx(expected[0], rel=1e-6, abs=1e-7)
        assert metrics[1] == pytest.approx(expected[1], rel=1e-5, abs=1e-6)
    one = load_file(tmp_path / "weights" / "model.safetensors")
    two = load_file(two_ranks / "weights" / "model.safetensors")
    assert two.keys() == one.keys()
    for name in one:
        assert (two[name] - one[name]).norm() / one[name].norm() < 1e-6, name


def test_a_checkpoint_of_two_ranks_loads_into_one(policy_dir: Path, two_ranks: Path, tmp_path: Path):
    learner = Learner(policy_dir, policy_dir, ALGORITHM, OPTIMIZER, 1.0, "float32", seed=0)

    learner.load_checkpoint(two_ranks / "checkpoint")
    learner.save_weights(tmp_path / "weights")

    assert learner.version == 2
    saved = load_file(two_ranks / "weights" / "model.safetensors")
    for name, value in load_file(tmp_path / "weights" / "model.safetensors").items():
        assert torch.equal(value, saved[name]), name
