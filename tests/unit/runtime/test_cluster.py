"""What a recipe needs is compared with what the cluster has before anything waits for it."""

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.runtime.accelerator import vendor
from tasks.runtime.cluster import check_fit, needed

GIB = 2**30


def test_a_placement_that_can_never_be_had_names_what_is_needed_and_what_there_is() -> None:
    needs = needed(load_recipe("r1", ["engine.cpus=4", "engine.count=2", "learner.cpus=1"]))

    with pytest.raises(UserError, match=r"needs CPU 9\.25 \(the cluster has 2\)"):
        check_fit(needs, {"CPU": 2, "memory": 64 * GIB})


def test_too_little_memory_is_named_in_gib() -> None:
    with pytest.raises(UserError, match=r"memory 4\.0\d* GiB \(the cluster has 2 GiB\)"):
        check_fit(needed(load_recipe("r1")), {"CPU": 2, "memory": 2 * GIB})


def test_missing_gpus_are_named() -> None:
    with pytest.raises(UserError, match=r"GPU 2 \(the cluster has 0\)"):
        check_fit(needed(load_recipe("r1", ["engine.gpus=1", "learner.gpus=1"])), {"CPU": 8, "memory": 64 * GIB})


def test_a_gpu_that_is_shared_is_needed_once() -> None:
    assert needed(load_recipe("r1", gpus=1))["GPU"] == 1
    assert needed(load_recipe("r1", gpus=2))["GPU"] == 2


def test_the_default_recipe_fits_two_cores() -> None:
    check_fit(needed(load_recipe("r1")), {"CPU": 2, "memory": 12 * GIB})


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"CPU": 2.0}, "cpu"),
        ({"CPU": 64.0, "GPU": 8.0, "accelerator_type:H100": 1.0}, "nvidia"),
        ({"CPU": 64.0, "GPU": 8.0, "accelerator_type:AMD-Instinct-MI300X-OAM": 1.0}, "amd"),
        ({"CPU": 64.0, "GPU": 0.0}, "cpu"),
    ],
)
def test_the_vendor_is_told_by_what_ray_reports(resources: dict[str, float], expected: str) -> None:
    assert vendor(resources) == expected
