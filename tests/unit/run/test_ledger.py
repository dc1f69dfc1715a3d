"""The run directory holds whole files only, commits each step once, and knows where to go on."""

import errno
import json
import math
import os
from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.records.samples import SCORED, write_samples
from tasks.run import ledger
from tasks.run.directory import Run, numbered
from tasks.run.ledger import (
    best_version,
    commit,
    committed_steps,
    create_run,
    forget_weights,
    once,
    open_run,
    read_commit,
    run_of,
)
from trainer import files
from trainer.files import read_json, sha256, whole_file, write_json


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(tmp_path, load_recipe("r1"))


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"old": 1})

    with pytest.raises(RuntimeError, match="power cut"), whole_file(target) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError("power cut")

    assert json.loads(target.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_or_read_only_disk_is_named_and_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"old": 1})

    def fail(path: Path) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(files, "sync", fail)
    with pytest.raises(UserError, match=rf"can't write .*a\.json: {os.strerror(code)}.*rl-post resume"):
        write_json(target, {"new": 1})

    assert json.loads(target.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [target]


def test_samples_for_which_there_is_no_room_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")  # As pyarrow says it, without the file's name.

    monkeypatch.setattr("pyarrow.parquet.write_table", no_room)
    with pytest.raises(UserError, match=r"can't write .*scored\.parquet: No space left"):
        write_samples(tmp_path / "scored.parquet", [], SCORED)

    assert list(tmp_path.iterdir()) == []


def test_the_file_is_on_the_disk_before_its_name_and_the_name_before_the_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, seen = tmp_path / "a.json", []
    monkeypatch.setattr(files, "sync", lambda path: seen.append((path == tmp_path, target.exists())))

    write_json(target, {})

    assert seen == [(False, False), (True, True)]  # (is the folder, has the name)


def test_a_run_that_was_created_opens_as_the_same_run(run: Run) -> None:
    assert open_run(run.home, run.id) == run


def test_an_unknown_run_names_the_latest_ones(run: Run) -> None:
    with pytest.raises(UserError, match=f"no run 'nope'.*{run.id}"):
        open_run(run.home, "nope")


def test_a_run_of_another_format_is_refused(run: Run) -> None:
    write_json(run.root / "run.json", {"format": 99})

    with pytest.raises(UserError, match="format 99"):
        open_run(run.home, run.id)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the way")

    with pytest.raises(UserError, match=r"can't write the run directory .*RL_POST_HOME"):
        create_run(tmp_path, load_recipe("r1"))


def test_once_makes_a_receipt_once_and_finds_it_again(run: Run) -> None:
    made = []

    def make() -> dict:
        made.append(1)
        return {"version": 3}

    first = once(run.step_file(1, "a.json"), make)
    second = once(run.step_file(1, "a.json"), make)

    assert first == second
    assert first["version"] == 3 and first["seconds"] >= 0
    assert len(made) == 1


def test_once_leaves_nothing_behind_when_making_fails(run: Run) -> None:
    def fail() -> dict:
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        once(run.step_file(1, "a.json"), fail)

    assert once(run.step_file(1, "a.json"), lambda: {"version": 4})["version"] == 4


def test_a_commit_holds_the_hash_of_every_file_of_its_step(run: Run) -> None:
    sample = run.step_file(1, "scored-00.parquet")
    sample.parent.mkdir(parents=True)
    sample.write_bytes(b"samples")

    commit(run, 1, {"reward/mean": 0.5})

    record = read_commit(run, 1)
    assert record.pop("time") > 0
    assert record == {"step": 1, "metrics": {"reward/mean": 0.5}, "files": {"scored-00.parquet": sha256(sample)}}


def test_a_step_is_committed_once(run: Run) -> None:
    commit(run, 1, {"reward/mean": 0.5})
    commit(run, 1, {"reward/mean": 0.9})

    assert read_commit(run, 1)["metrics"] == {"reward/mean": 0.5}


def test_only_committed_steps_count(run: Run) -> None:
    commit(run, 0, {})
    commit(run, 1, {})
    write_json(run.step_file(2, "update.json"), {})

    assert committed_steps(run) == [0, 1]


def test_folders_of_strangers_are_neither_steps_nor_checkpoints(run: Run) -> None:
    commit(run, 1, {})
    for name in ("foo", "1", "000001.bak", "-00001"):
        write_json(run.root / "steps" / name / "commit.json", {})
        write_json(run.root / "checkpoints" / name / "manifest.json", {})
    write_json(run.checkpoint(1) / "manifest.json", {})

    assert committed_steps(run) == [1]
    assert run.checkpoints() == [1]


@pytest.mark.parametrize("harm", ["truncated", "missing"])
def test_a_file_that_was_damaged_after_its_receipt_is_made_again(
    run: Run, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = run.step_file(1, "rollout-00.parquet")

    def make() -> dict:
        write_samples(file, [], SCORED)
        return {"path": str(file)}

    once(run.step_file(1, "rollout-00.json"), make)
    whole = file.read_bytes()
    file.write_bytes(whole[:-3]) if harm == "truncated" else file.unlink()

    once(run.step_file(1, "rollout-00.json"), make)

    assert file.read_bytes() == whole
    assert "rollout-00.parquet is missing or damaged" in caplog.text


def test_a_run_that_was_moved_finds_its_files_beside_their_receipts(run: Run, tmp_path: Path) -> None:
    def make(run: Run) -> dict:
        file = run.step_file(1, "rollout-00.parquet")
        write_samples(file, [], SCORED)
        return {"path": str(file)}

    once(run.step_file(1, "rollout-00.json"), lambda: make(run))
    run.root.rename(tmp_path / "moved")
    moved = Run(tmp_path / "moved", run.recipe)

    found = once(moved.step_file(1, "rollout-00.json"), lambda: pytest.fail("made again"))

    assert found["path"] == str(moved.step_file(1, "rollout-00.parquet"))


def test_a_path_in_the_home_is_stored_so_that_it_may_be_moved_and_another_as_it_is(run: Run) -> None:
    assert run.portable(str(run.home / "cache" / "policy")) == "cache/policy"
    assert run.portable("/models/policy") == "/models/policy"


def evaluated(run: Run, accuracies: dict[int, float]) -> None:
    for step, accuracy in accuracies.items():
        run.weights(step).mkdir(parents=True)
        commit(run, step, {"eval/heldout/sampled_accuracy": accuracy})


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [
        ({0: 0.2, 2: 0.5, 4: 0.4}, 2),
        ({0: 0.5, 2: 0.5}, 0),
        ({0: 0.2, 2: math.nan, 4: math.inf, 6: 0.1}, 0),
        ({0: math.nan}, None),
        ({}, None),
    ],
    ids=["highest", "earliest of equals", "not finite does not count", "nothing finite", "nothing evaluated"],
)
def test_the_best_version_has_the_highest_accuracy(run: Run, accuracies: dict[int, float], best: int | None) -> None:
    evaluated(run, accuracies)
    commit(run, 7, {})
    run.weights(7).mkdir(parents=True)
    run.weights(8).mkdir(parents=True)

    assert best_version(run) == best


@pytest.mark.parametrize(
    ("shares", "best"),
    [
        ({0: (0.5, 1.0), 2: (1.0, 0.1), 4: (0.6, 1.0)}, 4),
        ({0: (0.9, 0.05), 2: (0.5, 1.0)}, 2),
        ({0: (0.5, 0.8), 2: (0.6, 0.75)}, 2),
        ({0: (0.5, None), 2: (0.9, 0.5), 4: (0.6, 0.95)}, 4),
        ({0: (None, 0.0), 2: (0.1, 1.0)}, 2),
        ({0: (None, 0.0)}, None),
    ],
    ids=[
        "a judge that was down", "down at first", "unscorable each time", "runs of before say no share",
        "nothing scored is no 0", "nothing scored at all",
    ],
)  # fmt: skip
def test_u08_an_evaluation_that_lost_answers_is_not_the_best(
    run: Run, shares: dict[int, tuple[float | None, float | None]], best: int | None
) -> None:
    for step, (accuracy, scored) in shares.items():
        run.weights(step).mkdir(parents=True)
        metrics = {"eval/heldout/sampled_accuracy": accuracy, "eval/heldout/sampled_accuracy_scored": scored}
        commit(run, step, {name: value for name, value in metrics.items() if value is not None})

    assert best_version(run) == best


def test_the_first_the_best_and_the_last_weights_are_kept(run: Run) -> None:
    evaluated(run, {0: 0.1, 2: 0.5, 4: 0.4})
    for version in (1, 3, 5, 6):
        run.weights(version).mkdir(parents=True)

    forget_weights(run, before=5)

    assert numbered(run.root / "weights") == [0, 2, 5, 6]


def test_the_best_weights_of_a_long_run_are_found_by_a_few_commits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = [0.3, 0.2, 0.5, 0.4, 0.5, 0.1, 0.6, 0.55, 0.6, 0.2]
    read: list[Path] = []
    for step, accuracy in enumerate(accuracies):
        evaluated(run, {step: accuracy})
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "read_json", lambda path: read.append(path) or read_json(path))
            forget_weights(run, before=step)

        best = accuracies.index(max(accuracies[: step + 1]))
        assert numbered(run.root / "weights") == sorted({0, best, step})
    # Of the first version, of the best one, of the one before and of the new one.
    assert len(read) <= 4 * len(accuracies)


def test_a_neighbour_that_is_damaged_does_not_hinder_a_flow_run_from_finding_its_run(run: Run) -> None:
    begun = create_run(run.home, load_recipe("r1"), flow_run="this-one")
    (run.root / "run.json").write_text("{")

    assert run_of(run.home, "this-one") == begun
    assert run_of(run.home, "another") is None


MISTAKES = {
    "no record": ("run.json", None, "is no run: it has no run.json"),
    "torn record": ("run.json", "{", r"run\.json is damaged"),
    "foreign record": ("run.json", "[1]", r"run\.json is damaged"),
    "no recipe": ("recipe.yaml", None, r"recipe\.yaml is missing"),
    "recipe of another version": ("recipe.yaml", "name: r1\nstepps: 5", r"recipe\.yaml: unknown key stepps"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_directory_that_is_no_whole_run_is_named_with_what_is_wrong(run: Run, case: str) -> None:
    name, text, message = MISTAKES[case]
    (run.root / name).unlink()
    if text is not None:
        (run.root / name).write_text(text)

    with pytest.raises(UserError, match=message):
        open_run(run.home, run.id)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"step": 0}'])
def test_a_damaged_commit_is_named(run: Run, text: str) -> None:
    commit(run, 0, {})
    run.step_file(0, "commit.json").write_text(text)

    with pytest.raises(UserError, match=r"steps/000000/commit\.json is damaged"):
        read_commit(run, 0)
