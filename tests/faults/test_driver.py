"""`kill -9` of the driver in each stage, then resume: the run ends as if nothing had happened."""

import pytest

from tests.faults.faults import IN_DRIVER, Fault
from tests.faults.harness import Harness, Outcome
from tests.faults.results import differences

pytestmark = pytest.mark.slow  # Most of a minute each: a new driver starts Ray again.
STAGES = (
    "prepare dataset",
    "cold start",
    "start engines",
    "generate rollouts",
    "score rewards",
    "update policy",
    "save checkpoint",
    "publish weights",
    "evaluate",
    *IN_DRIVER,
)
SHARED = {"prepare dataset": "datasets", "cold start": "cold-start"}
"""What the runs of a home share and has to be made anew for the stage to have something to do."""


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("by_prefect", [False, True], ids=["resume", "retry"])
def test_a_driver_that_is_killed_in_a_stage_is_gone_on_with_to_the_same_result(
    harness: Harness, undisturbed: Outcome, stage: str, by_prefect: bool
) -> None:
    if stage in SHARED:
        harness.forget(SHARED[stage])

    outcome = harness.train(Fault("driver", step=2, stage=stage, by_prefect=by_prefect))

    assert outcome.struck and outcome.recovery.endswith("the driver was killed")
    assert differences(undisturbed.result, outcome.result) == []
