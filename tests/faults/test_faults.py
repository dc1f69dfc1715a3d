"""Things are killed at random moments of a training run: it ends as if nothing had happened.

A seed decides what is struck and when. A dozen are dealt to a few runs, which cost less than a run each.
`FAULT_SEEDS=17 make test-slow ARGS=tests/faults/test_faults.py` plays one alone, `benchmarks/faults.py` a hundred.
"""

import os

import pytest

from tests.faults.faults import FILES, KINDS, fault_of
from tests.faults.harness import STEPS, Harness, Outcome
from tests.faults.results import differences

RUNS, DOZEN = 3, 12
ALONE = [int(seed) for seed in os.environ.get("FAULT_SEEDS", " ".join(map(str, range(len(KINDS))))).split()]


@pytest.mark.slow
def test_the_same_recipe_twice_gives_the_same_result(harness: Harness, undisturbed: Outcome) -> None:
    again = harness.train()

    assert differences(undisturbed.result, again.result) == []


def test_there_is_something_to_lose(undisturbed: Outcome) -> None:
    result = undisturbed.result

    assert result.status == "FINISHED" and result.problems == []
    assert len(result.samples) == STEPS * 16
    assert len({row["reward"] for row in result.samples}) == 2
    assert [step for step, _ in result.history["policy/loss"]] == list(range(1, STEPS + 1))
    assert all(value > 0 for _, value in result.history["policy/grad_norm"])


def test_every_kind_of_fault_takes_its_turn() -> None:
    assert {fault_of(seed, STEPS).kind for seed in range(len(KINDS))} == set(KINDS)
    assert fault_of(7, STEPS) == fault_of(7, STEPS)


@pytest.mark.parametrize("first", range(RUNS))
def test_a_run_that_is_disturbed_again_and_again_ends_as_the_undisturbed_one(
    harness: Harness, undisturbed: Outcome, first: int
) -> None:
    faults = [fault_of(seed, STEPS) for seed in range(first, DOZEN, RUNS)]

    outcome = harness.train(*sorted(faults, key=lambda fault: (fault.step, FILES.index(fault.file), fault.delay)))

    assert len(outcome.struck) >= len(faults) - 1  # The last one may come too late.
    assert differences(undisturbed.result, outcome.result) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALONE)
def test_a_disturbed_run_ends_as_the_undisturbed_one(harness: Harness, undisturbed: Outcome, seed: int) -> None:
    outcome = harness.train(fault_of(seed, STEPS))

    assert differences(undisturbed.result, outcome.result) == []
