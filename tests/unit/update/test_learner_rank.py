import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from configs.schema import Recipe
from tasks.records.samples import GIVEN_UP, SCORED, read_samples, write_samples
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.run.identity import identity
from tasks.run.ledger import commit
from tasks.update import learner_rank as rank_module
from tasks.update.learner_rank import LearnerRank, training_samples
from tasks.weights import from_memory
from tests.ipv6 import needs_ipv6
from tests.scored import scored
from tests.unit.update.recording import TO_ONE, Recording
from trainer.files import sha256, write_json
from trainer.learner.learner import Learner
from trainer.state import checkpoint
from trainer.state.export import Export, Named


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three steps of stored batches."""
    run = Run(tmp_path / "home" / "runs" / "r", Recipe(name="r", steps=30, learner={"threads": 1}))  # pyright: ignore[reportArgumentType]
    for step in (1, 2, 3):
        write_json(run.step_file(step, "batch.json"), {"scored": [scored(run, step).name]})
    return run


def update(rank: LearnerRank, run: Run, step: int, policy_dir: str) -> str:
    rank.update(step, policy_dir, [str(run.step_file(step, "scored-00.parquet"))])
    return sha256(run.weights(step) / "model.safetensors")


def test_rows_become_samples(run: Run):
    first, second, *_ = training_samples([str(run.step_file(2, "scored-00.parquet"))], run.recipe)

    assert (first.group, first.prompt_ids, first.response_ids, first.weights_version) == ("0", [10, 11], [14, 13], 1)
    assert (first.reward, first.accuracy, first.truncated) == (0.0, None, False)
    assert (second.reward, second.accuracy, second.truncated) == (1.0, 0.5, True)


@pytest.mark.parametrize("lost", [{1}, {0, 1}, {0, 1, 2, 3}], ids=["one sample", "a group", "all"])
def test_u13_an_update_takes_a_batch_with_samples_that_were_given_up(run: Run, policy_dir: str, lost: set[int]):
    file = run.step_file(1, "scored-00.parquet")
    rows = read_samples([file])
    nothing = {"response_ids": [], "logprobs": [], "weights_versions": [], "finish_reason": GIVEN_UP}
    given_up = [
        row | nothing | {"reward": None, "parts": "{}"} if place in lost else row for place, row in enumerate(rows)
    ]
    write_samples(file, given_up, SCORED)

    metrics = LearnerRank(run, 0).update(1, policy_dir, [str(file)])

    assert metrics["policy/filtered_unscored"] == len(lost)
    assert metrics["policy/tokens"] == 2 * (4 - len(lost))
    assert metrics["policy/without_signal"] == float(len(lost) == 4)
    assert all(math.isfinite(value) for value in metrics.values())


@needs_ipv6
def test_the_first_rank_is_met_at_its_nodes_address_of_either_kind(run: Run, monkeypatch: pytest.MonkeyPatch):
    for host in ("127.0.0.1", "::1"):
        monkeypatch.setattr(rank_module, "own_address", lambda host=host: host)
        assert re.fullmatch(rf"{host}:\d+", LearnerRank(run, 0).address())


def test_a_lost_rank_is_rebuilt_by_replay_to_the_same_bits(run: Run, policy_dir: str):
    rank = LearnerRank(run, 0)
    expected = [update(rank, run, step, policy_dir) for step in (1, 2, 3)]

    assert update(LearnerRank(run, 0), run, 3, policy_dir) == expected[2]
    (rebuilt,) = read_events(run.events)
    assert (rebuilt["event"], rebuilt["version"], rebuilt["checkpoint"]) == ("learner rebuilt", 2, 0)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning_for_the_one_before(
    run: Run, policy_dir: str, caplog: pytest.LogCaptureFixture
):
    learner = Learner(run.recipe, Path(policy_dir))
    for version in (10, 20):
        checkpoint.save(run.checkpoint(version), learner._state(), version, identity(run))
    next(run.checkpoint(20).glob("*.distcp")).write_bytes(b"")

    with caplog.at_level(logging.WARNING):
        found = LearnerRank(run, 0)._load_checkpoint(learner, 25)

    assert found == learner.version == 10
    assert str(run.checkpoint(20)) in caplog.text


def test_a_learner_that_failed_in_the_middle_of_an_update_is_not_used_again(
    run: Run, policy_dir: str, monkeypatch: pytest.MonkeyPatch
):
    expected = update(LearnerRank(run, 0), run, 1, policy_dir)
    rank = LearnerRank(run, 0)
    rank.save_weights(0, policy_dir)
    learner = rank._at_version(0, policy_dir)

    def fail(path: object) -> None:
        with torch.no_grad():
            next(learner._policy.parameters()).zero_()
        raise RuntimeError("in the middle")

    monkeypatch.setattr(learner, "update", fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        update(rank, run, 1, policy_dir)

    assert update(rank, run, 1, policy_dir) == expected


@pytest.mark.parametrize("deterministic", [True, False])
def test_deterministic_mode_is_on_where_the_recipe_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, deterministic: bool
):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    recipe = Recipe(name="r", learner={"deterministic": deterministic, "threads": 1})  # pyright: ignore[reportArgumentType]
    try:
        LearnerRank(Run(run.root, recipe), 0)

        assert torch.are_deterministic_algorithms_enabled() == deterministic
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_checkpoint_that_another_rank_has_to_write_is_of_the_version_that_it_was_asked_for(run: Run, policy_dir: str):
    expected = update(LearnerRank(run, 0), run, 2, policy_dir)

    LearnerRank(run, 0).save_checkpoint(1, policy_dir)  # One that was lost came back empty.

    again = LearnerRank(run, 0)
    assert update(again, run, 2, policy_dir) == expected
    assert read_events(run.events)[-1]["checkpoint"] == 1


def test_the_last_two_checkpoints_and_the_best_one_are_kept(run: Run):
    for version in (10, 20, 30, 40):
        run.checkpoint(version).mkdir(parents=True)
        run.weights(version).mkdir(parents=True)
        write_json(run.step_file(version, "eval.json"), {})
        commit(run, version, {"eval/heldout/sampled_accuracy": 1 / version})

    LearnerRank(run, 0)._prune(40)

    assert run.checkpoints() == [10, 30, 40]


@pytest.fixture
def in_memory(run: Run, policy_dir: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, LearnerRank, Recording]:
    """A rank at version 1 of a run whose engines get weights from memory, and what stands in for its sender."""
    recording = Recording(run.recipe)
    monkeypatch.setattr(from_memory, "Sender", lambda recipe: recording)
    sync = run.recipe.weight_sync.model_copy(update={"via": "tensors"})
    run = Run(run.root, run.recipe.model_copy(update={"weight_sync": sync}))
    rank = LearnerRank(run, 0)
    rank.save_weights(0, policy_dir)
    rank.update(1, policy_dir, [str(run.step_file(1, "scored-00.parquet"))])
    return run, rank, recording


def test_what_engines_get_from_memory_is_not_written_and_is_the_same_where_it_is(
    in_memory: tuple[Run, LearnerRank, Recording], policy_dir: str
):
    run, rank, recording = in_memory
    assert not run.weights(1).exists()

    rank.send_weights(1, policy_dir, TO_ONE)
    rank.save_weights(1, policy_dir)

    ((version, sent),) = recording.sent
    stored = load_file(run.weights(1) / "model.safetensors")
    assert version == 1
    assert sent.keys() == stored.keys()
    assert all(torch.equal(sent[name], stored[name]) for name in stored)


def test_a_lost_rank_sends_the_version_that_it_is_asked_for(
    in_memory: tuple[Run, LearnerRank, Recording], policy_dir: str
):
    run, rank, recording = in_memory
    rank.send_weights(1, policy_dir, TO_ONE)

    LearnerRank(run, 0).send_weights(1, policy_dir, TO_ONE)

    (_, first), (_, again) = recording.sent
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_where_sending_fails_a_rank_goes_on_to_the_last_tensor_which_the_others_gather_too(
    in_memory: tuple[Run, LearnerRank, Recording], policy_dir: str, monkeypatch: pytest.MonkeyPatch
):
    _, rank, recording = in_memory
    recording.fails = True
    gathered: list[str] = []
    tensors = Export.tensors

    def counted(export: Export) -> Iterator[Named]:
        for name, tensor in tensors(export):
            gathered.append(name)
            yield name, tensor

    monkeypatch.setattr(Export, "tensors", counted)
    assert rank.send_weights(1, policy_dir, TO_ONE) == "an engine was lost"

    described = Learner(rank._run.recipe, Path(policy_dir)).export().described()
    assert gathered == [name for name, _ in described]


def test_the_sender_is_let_go_when_the_rank_meets_others(
    in_memory: tuple[Run, LearnerRank, Recording], policy_dir: str
):
    _, rank, recording = in_memory
    rank.send_weights(1, policy_dir, TO_ONE)

    rank.stop()

    assert recording.closed
