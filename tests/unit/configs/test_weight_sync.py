from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema import Recipe

MEMORY = {"weight_sync": {"via": "broadcast"}}
SHARED = {"engine": {"placement": "colocated", "gpus": 1}, "learner": {"gpus": 1}}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"weight_sync": {"via": "mail"}}, "'disk', 'broadcast' or 'tensors'"),
        ({"weight_sync": {"bucket_bytes": 0}}, "bucket_bytes"),
        (
            MEMORY | SHARED,
            "NCCL and RCCL allow one rank a GPU, but engine.placement colocated .*: set weight_sync.via to tensors",
        ),
    ],
)
def test_a_sync_that_can_not_work_is_refused_with_the_reason(sections: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Recipe(name="r", **sections)


@pytest.mark.parametrize(
    "sections",
    [
        SHARED | {"weight_sync": {"via": "tensors"}},
        MEMORY | {"engine": {"placement": "colocated"}},
        MEMORY | {"pipeline": {"max_staleness": 2}},
    ],
    ids=["shared GPUs through shared memory", "nothing to share on a CPU", "stale rollouts"],
)
def test_a_sync_that_can_work_is_taken(sections: dict[str, Any]):
    Recipe(name="r", **sections)


@pytest.mark.parametrize(("via", "kept"), [("disk", 0), ("broadcast", 2), ("tensors", 2)])
def test_versions_that_engines_lag_behind_are_kept_in_memory_where_they_are_not_on_disk(via: str, kept: int):
    recipe = {"name": "r", "weight_sync": {"via": via}, "pipeline": {"max_staleness": 2}}

    assert Recipe.model_validate(recipe).versions_kept == kept


def test_by_disk_every_version_is_stored_and_else_those_that_are_kept_or_evaluated():
    often = {"steps": 11, "learner": {"checkpoint_every": 4}, "evaluation": {"every": 6}}
    disk, memory = Recipe(name="r", **often), Recipe(name="r", **often, **MEMORY)  # pyright: ignore[reportArgumentType]

    assert all(disk.stores_weights(version) for version in range(12))
    assert [version for version in range(12) if memory.stores_weights(version)] == [0, 4, 6, 8, 11]
