"""Losses that one node with one learner rank can't have: a rank of two, and a node whose work a spare takes over."""

from pathlib import Path

import pytest

from tests.faults.faults import Fault
from tests.faults.harness import Harness
from tests.faults.results import differences

pytestmark = pytest.mark.slow


def test_one_rank_of_two_is_lost_and_the_ranks_meet_again(tmp_path: Path) -> None:
    with Harness(tmp_path, settings=["learner.ranks=2", "learner.threads=1"]) as harness:
        undisturbed = harness.train()
        outcome = harness.train(Fault("learner actor", step=2, file="batch.json"))

    assert outcome.struck and outcome.recovery == "by itself"
    assert "learner rebuilt" in [event["event"] for event in outcome.events]
    assert differences(undisturbed.result, outcome.result) == []


def test_a_node_is_lost_with_engine_and_learner_and_the_spare_takes_over(tmp_path: Path) -> None:
    # Actors that ask for CPUs: Ray would put them on the driver's node otherwise, which offers none.
    with Harness(tmp_path, settings=["engine.cpus=1", "learner.cpus=1"], nodes=2) as harness:
        undisturbed = harness.train()
        outcome = harness.train(Fault("ray node", step=2, file="scored-00.json"))

    assert outcome.struck and outcome.recovery == "by itself"
    assert "learner rebuilt" in [event["event"] for event in outcome.events]
    assert differences(undisturbed.result, outcome.result) == []
