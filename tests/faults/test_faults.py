"""Kill one thing at a random moment of a training run: it ends as if nothing had happened.

A seed decides what is struck and when. `FAULT_SEEDS=17 make test-slow ARGS=tests/faults/test_faults.py` plays one
again, `benchmarks/faults.py` goes through a hundred of them.
"""

import os

import pytest

from tests.faults.faults import KINDS, fault_of
from tests.faults.harness import STEPS, Harness, Outcome, differences

# A run takes most of a minute: these are not among the tests of every commit.
pytestmark = pytest.mark.slow
SEEDS = [int(seed) for seed in os.environ.get("FAULT_SEEDS", "0 1 2 3 4 5 6 7").split()]


def test_the_same_recipe_twice_gives_the_same_result(harness: Harness, undisturbed: Outcome) -> None:
    again = harness.train()

    assert undisturbed.result.status == "FINISHED"
    assert undisturbed.result.problems == []
    assert differences(undisturbed.result, again.result) == []


def test_there_is_something_to_lose(undisturbed: Outcome) -> None:
    result = undisturbed.result

    assert len(result.samples) == STEPS * 16
    assert len({row["reward"] for row in result.samples}) == 2
    assert [step for step, _ in result.history["policy/loss"]] == list(range(1, STEPS + 1))
    assert all(value > 0 for _, value in result.history["policy/grad_norm"])


def test_every_kind_of_fault_takes_its_turn() -> None:
    assert {fault_of(seed, STEPS).kind for seed in range(len(KINDS))} == set(KINDS)
    assert fault_of(7, STEPS) == fault_of(7, STEPS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disturbed_run_ends_as_the_undisturbed_one(harness: Harness, undisturbed: Outcome, seed: int) -> None:
    outcome = harness.train(fault_of(seed, STEPS))

    assert differences(undisturbed.result, outcome.result) == []
