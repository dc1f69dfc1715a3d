"""Versions that a learner has left behind come back to the bit, whole, as adapters, and sharded over ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

from configs.schema import Recipe
from tests.unit.trainer.learners import equal, state
from trainer.batches.samples import Sample
from trainer.learner.learner import Learner
from trainer.state.weight_history import WeightHistory

KINDS: dict[str, dict[str, Any]] = {"whole": {}, "adapters": {"lora": {"rank": 2}}}
MEMORY = {"weight_sync": {"via": "broadcast"}, "pipeline": {"max_staleness": 2}}


def train(policy_dir: Path, learner: dict[str, Any], out: Path, samples: list[Sample]) -> list[bool]:
    """Three updates, each version saved at its time; then whether older ones come back, and the learner after them."""
    recipe = {"name": "test", "optimizer": {"learning_rate": 1e-3}, "learner": learner, **MEMORY}
    trained = Learner(Recipe.model_validate(recipe), policy_dir)
    for version in (1, 2, 3):
        trained.update(samples)
        trained.save_weights(out / str(version))
    before = local(state(trained))
    found = []
    for version in (1, 2):
        with trained.at(version):
            found.append(equal(dict(trained.export().tensors()), stored(out / str(version))))
            trained.save_weights(out / f"{version}-again")
        found.append(equal(stored(out / f"{version}-again"), stored(out / str(version))))
        found.append(equal(local(state(trained)), before))
    return found


def stored(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def local(of: dict[str, Tensor]) -> dict[str, Tensor]:
    """What one rank has."""
    return {name: getattr(value, "to_local", lambda value=value: value)() for name, value in of.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_is_brought_back_for_as_long_as_it_is_needed(
    policy_dir: Path, make_samples: Callable[..., list[Sample]], tmp_path: Path, kind: str
):
    assert train(policy_dir, KINDS[kind], tmp_path, make_samples()) == [True] * 6

    assert not equal(stored(tmp_path / "1"), stored(tmp_path / "2"))


def rank_main(rank: int, policy_dir: Path, out: Path, samples: list[Sample]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    found = {kind: train(policy_dir, learner, out / kind, samples) for kind, learner in KINDS.items()}
    torch.save(found, out / f"found-{rank}.pt")
    dist.destroy_process_group()


def test_so_it_is_where_each_rank_has_a_share(
    policy_dir: Path, make_samples: Callable[..., list[Sample]], tmp_path: Path
):
    mp.get_context("forkserver").set_forkserver_preload([Learner.__module__])
    start_processes(rank_main, (policy_dir, tmp_path, make_samples()), nprocs=2, start_method="forkserver")

    for rank in (0, 1):
        assert torch.load(tmp_path / f"found-{rank}.pt", weights_only=True) == {kind: [True] * 6 for kind in KINDS}


def test_weights_come_back_after_a_block_that_fails():
    weight = torch.zeros(2)
    past = WeightHistory([weight], 1)
    past.keep(0)
    weight += 1

    with pytest.raises(RuntimeError, match="disk"), past.brought_back(0):
        assert weight.tolist() == [0, 0]
        raise RuntimeError("the disk is full")

    assert weight.tolist() == [1, 1]


def test_only_the_last_versions_are_kept():
    past = WeightHistory([torch.zeros(1)], 2)

    for version in range(4):
        past.keep(version)

    assert past.versions() == [2, 3]


def test_adapters_alone_are_copied_where_the_weights_are_frozen(
    make_learner: Callable[..., Learner], make_samples: Callable[..., list[Sample]]
):
    learner = make_learner(learner=KINDS["adapters"], **MEMORY)
    learner.update(make_samples())

    trained = [weight.numel() for name, weight in learner._policy.named_parameters() if ".lora_" in name]
    assert [copy.numel() for copy in learner._past._copies[0]] == trained
