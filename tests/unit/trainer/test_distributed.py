"""Several ranks compute what one computes, sharded over all or in replicas, and take over each other's state."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import start_processes

from configs.schema import Recipe
from tests.ipv6 import needs_ipv6
from trainer import distributed
from trainer.batches.samples import Sample
from trainer.learner.learner import Learner

# Small micro-batches, so that the ranks have several of them, and not equally many: 11 samples.
OPTIMIZER = {"learning_rate": 1e-3, "micro_batch_tokens": 30}
SIZES: dict[str, Any] = {"model": {"context_length": 30}, "rollout": {"max_response_tokens": 16}}
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
FOUR: dict[str, dict[str, Any]] = {
    "plain": SETTINGS["plain"],
    "replicas": {"algorithm": KL, "learner": {"ranks": 4, "replicas": 2}},
}
"""What four ranks train; `replicas` is `plain` in two copies."""
WEIGHTS_TOLERANCE, METRICS_TOLERANCE = 1e-5, 1e-5


def make_learner(policy_dir: Path, settings: dict[str, Any]) -> Learner:
    return Learner(Recipe(name="test", **SIZES, **{"optimizer": OPTIMIZER, **settings}), policy_dir)


def train(policy_dir: Path, settings: dict[str, Any], out: Path, samples: list[Sample]) -> list[dict[str, float]]:
    """Two updates; leaves weights and a checkpoint in `out`."""
    learner = make_learner(policy_dir, settings)
    metrics = [learner.update(samples), learner.update(samples)]
    learner.save_weights(out / "weights")
    learner.save_checkpoint(out / "checkpoint", "r")
    return metrics


def go_on(policy_dir: Path, settings: dict[str, Any], checkpoint: Path, out: Path, samples: list[Sample]) -> None:
    """One update from a checkpoint; leaves the weights before and after in `out`."""
    learner = make_learner(policy_dir, settings)
    learner.load_checkpoint(checkpoint, "r")
    learner.save_weights(out / "loaded")
    learner.update(samples)
    learner.save_weights(out / "updated")


def held(learner: Learner) -> int:
    """Numbers of the policy that this rank holds."""
    weights = cast(Iterator[DTensor], learner._policy.parameters())
    return sum(weight.to_local().numel() for weight in weights)


def meet(rank: int, count: int, out: Path) -> None:
    """The first rank opens the door and writes down where it is."""
    torch.set_num_threads(1)
    door = distributed.open_rendezvous("127.0.0.1") if rank == 0 else None
    address = out / "address"
    if door:
        (out / "writing").write_text(f"127.0.0.1:{door.getsockname()[1]}")
        (out / "writing").rename(address)
    while not address.exists():
        time.sleep(0.01)
    distributed.join_group(address.read_text(), rank, count, "cpu", 60.0, door)


def two_main(rank: int, policy_dir: Path, out: Path, samples: list[Sample]) -> None:
    meet(rank, 2, out)
    metrics = {name: train(policy_dir, settings, out / name, samples) for name, settings in SETTINGS.items()}
    torch.save(metrics, out / f"metrics-{rank}.pt")
    distributed.leave_group()


def four_main(rank: int, policy_dir: Path, checkpoint: Path, out: Path, samples: list[Sample]) -> None:
    meet(rank, 4, out)
    metrics = {name: train(policy_dir, settings, out / name, samples) for name, settings in FOUR.items()}
    for name, settings in FOUR.items():
        go_on(policy_dir, settings, checkpoint, out / name, samples)
    torch.save(metrics, out / f"metrics-{rank}.pt")
    torch.save(
        {name: held(make_learner(policy_dir, settings)) for name, settings in FOUR.items()}, out / f"held-{rank}.pt"
    )
    distributed.leave_group()


@pytest.fixture(scope="module")
def samples(make_samples: Callable[..., list[Sample]]) -> list[Sample]:
    return make_samples()[:11]


def start(main: Callable[..., None], count: int, *arguments: Any) -> None:
    """Run the ranks, which are forked from one process that has imported everything."""
    mp.get_context("forkserver").set_forkserver_preload([Learner.__module__])
    start_processes(main, arguments, nprocs=count, start_method="forkserver")


@pytest.fixture(scope="module")
def two_ranks(policy_dir: Path, samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two-ranks")
    start(two_main, 2, policy_dir, out, samples)
    return out


@pytest.fixture(scope="module")
def one_rank(
    policy_dir: Path, samples: list[Sample], two_ranks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """One rank that took over the checkpoint of two, saved it, and went on."""
    out = tmp_path_factory.mktemp("one-rank")
    learner = make_learner(policy_dir, SETTINGS["plain"])
    learner.load_checkpoint(two_ranks / "plain" / "checkpoint", "r")
    learner.save_checkpoint(out / "checkpoint", "r")
    go_on(policy_dir, SETTINGS["plain"], out / "checkpoint", out, samples)
    return out


@pytest.fixture(scope="module")
def four_ranks(
    policy_dir: Path, samples: list[Sample], one_rank: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("four-ranks")
    start(four_main, 4, policy_dir, one_rank / "checkpoint", out, samples)
    return out


def check_same_training(expected: list[dict[str, float]], one: Path, several: Path, name: str) -> None:
    """The metrics of two updates on every rank, and the weights after them."""
    for file in several.glob("metrics-*.pt"):
        metrics = torch.load(file, weights_only=True)[name]
        assert metrics[0] == pytest.approx(expected[0], rel=METRICS_TOLERANCE, abs=1e-6)
        assert metrics[1] == pytest.approx(expected[1], rel=10 * METRICS_TOLERANCE, abs=1e-5)
    assert difference(one / "weights", several / name / "weights") < WEIGHTS_TOLERANCE


def difference(one: Path, other: Path) -> float:
    """The largest relative distance of a weight."""
    left, right = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).norm() / left[name].norm()) for name in left)


@pytest.mark.parametrize("name", SETTINGS)
def test_two_ranks_report_and_update_as_one_does(
    policy_dir: Path, samples: list[Sample], two_ranks: Path, tmp_path: Path, name: str
):
    expected = train(policy_dir, SETTINGS[name], tmp_path, samples)

    assert len(list(two_ranks.glob("metrics-*.pt"))) == 2
    check_same_training(expected, tmp_path, two_ranks, name)


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks_report_and_update_as_one_does(
    policy_dir: Path, samples: list[Sample], four_ranks: Path, tmp_path: Path, name: str
):
    expected = train(policy_dir, SETTINGS["plain"], tmp_path, samples)

    assert len(list(four_ranks.glob("metrics-*.pt"))) == 4
    check_same_training(expected, tmp_path, four_ranks, name)


def test_each_of_two_replicas_is_sharded_over_two_of_four_ranks(policy_dir: Path, four_ranks: Path):
    whole = sum(weight.numel() for weight in make_learner(policy_dir, SETTINGS["plain"])._policy.parameters())

    parts = [torch.load(four_ranks / f"held-{rank}.pt", weights_only=True) for rank in range(4)]

    assert sum(part["plain"] for part in parts) == whole
    assert [sum(part["replicas"] for part in half) for half in (parts[:2], parts[2:])] == [whole, whole]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_checkpoint_of_two_ranks_loads_into_one(policy_dir: Path, two_ranks: Path, tmp_path: Path, name: str):
    learner = make_learner(policy_dir, SETTINGS[name])

    learner.load_checkpoint(two_ranks / name / "checkpoint", "r")
    learner.save_weights(tmp_path / "weights")

    assert learner.version == 2
    assert difference(two_ranks / name / "weights", tmp_path / "weights") == 0


@pytest.mark.parametrize("name", FOUR)
def test_a_checkpoint_goes_from_two_ranks_to_one_to_four_and_they_go_on_alike(
    two_ranks: Path, one_rank: Path, four_ranks: Path, name: str
):
    assert difference(two_ranks / "plain" / "weights", four_ranks / name / "loaded") == 0
    assert difference(one_rank / "updated", four_ranks / name / "updated") < WEIGHTS_TOLERANCE


def test_a_rank_that_waits_for_one_that_does_not_come_gives_up():
    door = distributed.open_rendezvous("127.0.0.1")

    with pytest.raises(RuntimeError, match="arrived/1"):
        distributed.join_group(f"127.0.0.1:{door.getsockname()[1]}", 0, 2, "cpu", 0.5, door)

    assert distributed.world_size() == 1


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_nobody_but_the_address_is_listened_at(host: str):
    with distributed.open_rendezvous(host) as door:
        assert door.getsockname()[0] == host


@needs_ipv6
def test_ranks_meet_at_an_ipv6_address():
    door = distributed.open_rendezvous("::1")

    distributed.join_group(f"::1:{door.getsockname()[1]}", 0, 1, "cpu", 5.0, door)

    assert dist.is_initialized()
    distributed.leave_group()
