"""What a recipe needs is compared with what the cluster has before anything waits for it."""

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.cluster.devices import gpu_type, vendor
from tasks.processes.actors import check_fit, needed

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


def test_versions_that_the_learner_keeps_for_engines_that_lag_behind_take_memory() -> None:
    beside = ["pipeline.max_staleness=2", "algorithm.old_policy=behaviour", "algorithm.correction.weight=none"]
    disk, memory = (needed(load_recipe("r1", [*beside, f"weight_sync.via={via}"])) for via in ("disk", "broadcast"))

    assert memory["memory"] - disk["memory"] == 2 * 4 * 1_600_000


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
    assert vendor(None, resources) == expected


MIXED = {"GPU": 24.0, "accelerator_type:H100": 1.0, "accelerator_type:AMD-Instinct-MI300X-OAM": 2.0}


@pytest.mark.parametrize(("chosen", "expected"), [("H100", "nvidia"), ("AMD-Instinct-MI300X-OAM", "amd")])
def test_of_several_types_of_gpus_the_chosen_one_decides(chosen: str, expected: str) -> None:
    assert vendor(chosen, MIXED) == expected


def test_several_types_of_gpus_are_refused_without_a_choice() -> None:
    with pytest.raises(UserError, match="set accelerator_type to AMD-Instinct-MI300X-OAM or H100"):
        vendor(None, MIXED)


@pytest.mark.parametrize(
    ("resources", "there"), [(MIXED, "AMD-Instinct-MI300X-OAM, H100"), ({"GPU": 8.0}, "no GPU of a type")]
)
def test_a_type_that_is_not_there_is_refused_with_those_that_are(resources: dict[str, float], there: str) -> None:
    with pytest.raises(UserError, match=f"accelerator_type is H200, but the cluster has {there}"):
        vendor("H200", resources)


def test_gpus_whose_type_ray_does_not_know_are_taken_without_a_choice() -> None:
    assert gpu_type(None, {"GPU": 8.0}) is None
