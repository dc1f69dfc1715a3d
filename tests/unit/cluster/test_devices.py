import pytest

from configs.errors import UserError
from tasks.cluster.devices import Accelerator, device_environment, unset_by_ray, visible_devices


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["1"]),
        ({"HIP_VISIBLE_DEVICES": "0,1"}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0"}, ["0"]),
        ({"ROCR_VISIBLE_DEVICES": "0"}, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": "2,-1,3"}, ["2"]),
    ],
)
def test_on_amd_any_one_variable_names_the_devices(environment: dict[str, str], devices: list[str] | None):
    assert visible_devices(environment, "amd") == devices


def test_on_amd_contradicting_variables_are_refused_by_name_and_value():
    with pytest.raises(UserError, match="HIP_VISIBLE_DEVICES=0 and CUDA_VISIBLE_DEVICES=0,1 contradict"):
        visible_devices({"CUDA_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0"}, "amd")


@pytest.mark.parametrize("other", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_on_amd_a_filter_behind_a_filter_is_refused(other: str):
    with pytest.raises(UserError, match=f"ROCR_VISIBLE_DEVICES=1 and {other}=1 are both set"):
        visible_devices({"ROCR_VISIBLE_DEVICES": "1", other: "1"}, "amd")


def test_on_nvidia_the_variables_of_amd_mean_nothing():
    assert visible_devices({"HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "0,1"}, "nvidia") == ["0", "1"]
    assert visible_devices({"ROCR_VISIBLE_DEVICES": "3"}, "nvidia") is None


def test_a_cpu_has_no_devices_whatever_the_variables_say():
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "0"}, "cpu") == []


@pytest.mark.parametrize(
    ("accelerator", "variables"),
    [("nvidia", {"CUDA_VISIBLE_DEVICES": "2,3"}), ("amd", {"HIP_VISIBLE_DEVICES": "2,3"}), ("cpu", {})],
)
def test_each_vendor_is_told_by_its_own_variable(accelerator: Accelerator, variables: dict[str, str]):
    assert device_environment(["2", "3"], accelerator) == variables


@pytest.mark.parametrize(
    ("accelerator", "variables"),
    [
        ("nvidia", {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}),
        ("amd", {"RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1"}),
        ("cpu", {}),
    ],
)
def test_ray_is_kept_from_each_vendors_variable_by_its_own(accelerator: Accelerator, variables: dict[str, str]):
    assert unset_by_ray(accelerator) == variables
