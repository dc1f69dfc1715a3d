"""On nodes where Ray may not write which GPUs a process sees, each actor sees its own. Ray believes in these GPUs."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import ray

from tasks.cluster.devices import CUDA, HIP, Accelerator
from tasks.processes.local_ray import prepare_local_ray
from tests.integration.stand_in import Holder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gpus() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # Ray's workers import the tests' own actors.
        for name in (CUDA, HIP):
            patch.setenv(f"RAY_EXPERIMENTAL_NOSET_{name}", "1")
            patch.delenv(name, raising=False)
        prepare_local_ray(os.environ)
        ray.init(address="local", num_cpus=4, num_gpus=8, log_to_driver=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()


def seen(held: list[tuple[str, int, Accelerator]]) -> list[dict[str, list[str]]]:
    """Return what actors that hold so many GPUs each find in their environment, all at once."""
    made = cast(Any, ray.remote(Holder))
    actors = [made.options(num_cpus=0.1, num_gpus=gpus).remote(kind, gpus, vendor) for kind, gpus, vendor in held]
    return ray.get([actor.devices.remote() for actor in actors], timeout=180)


@pytest.mark.usefixtures("gpus")
def test_u29_ranks_and_engines_take_the_gpus_that_ray_gave_them() -> None:
    first, second, shared, engine, other_name, wide = seen(
        [
            ("rank", 1, "nvidia"),
            ("rank", 1, "nvidia"),
            ("rank", 0, "nvidia"),
            ("engine", 2, "nvidia"),
            ("engine told otherwise", 1, "amd"),
            ("engine", 3, "amd"),
        ]
    )

    assert [len(one[CUDA]) for one in (first, second, engine)] == [1, 1, 2]
    assert shared == {}  # It is told by the engine whose GPU it shares.
    assert {*other_name} == {*wide} == {HIP}  # AMD's driver would read the other name as well.
    assert [len(one[HIP]) for one in (other_name, wide)] == [1, 3]
    taken = [device for one in (first, second, engine, other_name, wide) for ids in one.values() for device in ids]
    assert sorted(taken) == [str(number) for number in range(8)]
