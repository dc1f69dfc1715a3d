"""The vendor and type of the GPUs that a run is on."""

import pytest

from configs.errors import UserError
from tasks.cluster.devices import gpu_type, vendor


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
