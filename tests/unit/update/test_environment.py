"""The environment of a rank on each kind of hardware."""

from typing import Any

import pytest

from configs.schema import Recipe
from tasks.cluster.devices import Accelerator
from tasks.update.environment import learner_environment


def environment(accelerator: Accelerator, **sections: Any) -> dict[str, str]:
    return learner_environment(Recipe.model_validate({"name": "r", **sections}), accelerator)


def channels(accelerator: Accelerator, via: str = "broadcast", **engine: Any) -> set[str]:
    """How many channels NCCL is told to use."""
    shown = environment(accelerator, engine={"gpus": 2, **engine}, weight_sync={"via": via})
    return {value for name, value in shown.items() if name.endswith("_NCHANNELS")}


def test_a_rank_on_a_cpu_has_its_own_threads_and_nothing_of_gpus():
    shown = environment("cpu", learner={"threads": 3})

    assert shown["OMP_NUM_THREADS"] == "3"
    assert not [name for name in shown if "NCCL" in name or "ALLOC" in name]


@pytest.mark.parametrize("accelerator", ["nvidia", "amd"])
def test_nccl_is_set_in_a_rank_as_sglang_sets_it_in_an_engine(accelerator: Accelerator):
    assert {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}.items() <= environment(accelerator).items()


def test_amds_queues_and_rccls_priority_go_together():
    assert {"GPU_MAX_HW_QUEUES": "2", "TORCH_NCCL_HIGH_PRIORITY": "1"}.items() <= environment("amd").items()
    assert not {"GPU_MAX_HW_QUEUES", "TORCH_NCCL_HIGH_PRIORITY"} & environment("nvidia").keys()


def test_a_rank_that_broadcasts_to_deterministic_engines_of_several_gpus_has_their_channels():
    assert channels("nvidia") == {"8"}


def test_channels_are_nccls_choice_where_sglang_leaves_them_so():
    assert channels("nvidia", via="disk") == set()
    assert channels("nvidia", gpus=1) == set()
    assert channels("nvidia", deterministic=False) == set()
    assert channels("amd") == set()
