from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema import Recipe

MEMORY = {"weight_sync": {"via": "broadcast"}}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"weight_sync": {"via": "mail"}}, "'disk', 'broadcast' or 'tensors'"),
        ({"weight_sync": {"bucket_bytes": 0}}, "bucket_bytes"),
        (
            MEMORY | {"pipeline": {"max_staleness": 1}},
            "max_staleness 1 is ahead of the weights that are due: set weight_sync.via to disk",
        ),
        (
            MEMORY | {"engine": {"placement": "colocated", "gpus": 1}, "learner": {"gpus": 1}},
            "placement colocated can't while engines have its memory: set weight_sync.via to disk",
        ),
    ],
)
def test_a_sync_that_can_not_work_is_refused_with_the_reason(sections: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Recipe(name="r", **sections)


def test_by_disk_every_version_is_stored_and_else_those_that_are_kept_or_evaluated():
    often = {"steps": 11, "learner": {"checkpoint_every": 4}, "evaluation": {"every": 6}}
    disk, memory = Recipe(name="r", **often), Recipe(name="r", **often, **MEMORY)  # pyright: ignore[reportArgumentType]

    assert all(disk.stores_weights(version) for version in range(12))
    assert [version for version in range(12) if memory.stores_weights(version)] == [0, 4, 6, 8, 11]
