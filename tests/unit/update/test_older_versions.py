"""A learner that is ahead of the engines: it sends and writes the versions that they still need, to the bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from configs.schema import Recipe
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.update.learner_rank import LearnerRank
from tasks.weights import from_memory
from tests.scored import scored
from tests.unit.update.recording import TO_ONE, Recording
from trainer.files import sha256, write_json

STEPS = 4
KINDS = {"whole": {}, "adapters": {"lora": {"rank": 2}}}


class Stage:
    """A rank of a run whose engines get weights from memory, and one of a run that writes every version."""

    def __init__(self, root: Path, policy: str, recording: Recording, staleness: int, **learner: Any) -> None:
        self.policy, self.recording = policy, recording
        sections = {"steps": 30, "learner": {"threads": 1, "checkpoint_every": 30, **learner}}
        pipeline = {"max_staleness": staleness}
        self.written = Run(root / "disk", Recipe.model_validate({"name": "r", **sections, "pipeline": pipeline}))
        memory = {"name": "r", **sections, "pipeline": pipeline, "weight_sync": {"via": "tensors"}}
        self.run = Run(root / "memory", Recipe.model_validate(memory))
        by_disk = LearnerRank(self.written, 0)
        by_disk.save_weights(0, policy)
        for step in range(1, STEPS + 1):
            for run in (self.written, self.run):
                write_json(run.step_file(step, "batch.json"), {"scored": [scored(run, step).name]})
            self.update(by_disk, self.written, step)
        self.rank = LearnerRank(self.run, 0)
        self.rank.save_weights(0, policy)

    def update(self, rank: LearnerRank, run: Run, step: int) -> None:
        rank.update(step, self.policy, [str(run.step_file(step, "scored-00.parquet"))])

    def go_to(self, version: int) -> None:
        for step in range(max(self.rank.held(), default=0) + 1, version + 1):
            self.update(self.rank, self.run, step)

    def sends(self, version: int, rank: LearnerRank | None = None) -> bool:
        """Whether what is sent for a version is what is written of it."""
        (rank or self.rank).send_weights(version, self.policy, TO_ONE)
        sent_as, sent = self.recording.sent[-1]
        stored = load_file(self.written.weights(version) / "model.safetensors")
        same = sent.keys() == stored.keys() and all(torch.equal(sent[name], stored[name]) for name in stored)
        return same and sent_as == version

    def writes(self, version: int) -> bool:
        """Whether what a run writes that rarely does is what one writes that always does."""
        self.rank.save_weights(version, self.policy)
        files = [run.weights(version) / "model.safetensors" for run in (self.run, self.written)]
        return sha256(files[0]) == sha256(files[1])

    def rebuilt(self) -> list[int]:
        return [event["version"] for event in read_events(self.run.events)]


@pytest.fixture
def stage(tmp_path: Path, policy_dir: str, monkeypatch: pytest.MonkeyPatch):
    recording = Recording(Recipe(name="r"))
    monkeypatch.setattr(from_memory, "Sender", lambda recipe: recording)
    return lambda staleness, **learner: Stage(tmp_path, policy_dir, recording, staleness, **learner)


@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_that_is_ahead_sends_each_version_as_it_was_and_goes_on_as_if_it_had_not(stage, kind: str):
    made = stage(2, **KINDS[kind])
    made.go_to(3)

    assert [made.sends(version) for version in (1, 2, 3, 1)] == [True] * 4
    made.go_to(4)
    assert made.sends(4)
    assert made.rebuilt() == []


def test_a_version_that_is_evaluated_is_written_as_it_was_by_a_learner_that_is_ahead(stage):
    made = stage(1)
    made.go_to(3)

    assert made.writes(2)
    made.go_to(4)
    assert made.writes(4)
    assert made.rebuilt() == []


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_a_rank_holds_its_version_and_as_many_before_it_as_engines_may_lag_behind(stage, staleness: int):
    made = stage(staleness)
    made.go_to(4)

    assert made.rank.held() == tuple(range(4 - staleness, 5))
    assert LearnerRank(made.written, 0).held() == ()


def test_with_weights_on_disk_a_rank_holds_only_its_own(stage):
    made = stage(2)
    rank = LearnerRank(made.written, 0)

    rank.hold(3, made.policy)

    assert rank.held() == (3,)


def test_a_version_that_is_held_no_more_is_made_by_replay_from_which_the_learner_goes_on(stage):
    made = stage(1)
    made.go_to(3)

    assert made.sends(1)
    made.update(made.rank, made.run, 4)
    assert made.rank.held() == (3, 4)
    assert made.sends(4)
    assert made.rebuilt() == [1]


def test_an_update_is_made_from_the_version_before_it_and_not_from_one_that_is_only_remembered(stage):
    made = stage(2)
    made.go_to(3)

    made.update(made.rank, made.run, 3)  # As a task does that died before it could say that it was done.

    assert made.rank.held() == (1, 2, 3)
    assert made.sends(3)


def test_a_learner_that_was_lost_holds_what_one_does_that_was_not(stage):
    made = stage(2, checkpoint_every=2)
    made.go_to(4)
    again = LearnerRank(made.run, 0)

    again.hold(4, made.policy)

    assert again.held() == made.rank.held() == (2, 3, 4)
    assert all(made.sends(version, again) for version in (2, 3, 4))


def test_checkpoints_are_kept_from_which_a_lost_learner_comes_back_to_all_versions(stage):
    made = stage(2)

    for version in range(1, 5):
        made.go_to(version)
        made.rank.save_checkpoint(version, made.policy)

    assert made.run.checkpoints() == [1, 2, 3, 4]
