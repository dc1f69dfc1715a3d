"""The run directory holds whole files only, commits each step once, and knows where to go on."""

import json
from pathlib import Path

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.runtime.files import sha256, whole_file, write_json
from tasks.runtime.ledger import Run, commit, committed_steps, create_run, once, open_run, read_commit


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
        return {"path": "x"}

    first = once(run.step_file(1, "a.json"), make)
    second = once(run.step_file(1, "a.json"), make)

    assert first == second
    assert first["path"] == "x" and first["seconds"] >= 0
    assert len(made) == 1


def test_once_leaves_nothing_behind_when_making_fails(run: Run) -> None:
    def fail() -> dict:
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        once(run.step_file(1, "a.json"), fail)

    assert once(run.step_file(1, "a.json"), lambda: {"path": "y"})["path"] == "y"


def test_a_commit_holds_the_hash_of_every_file_of_its_step(run: Run) -> None:
    sample = run.step_file(1, "scored-00.parquet")
    sample.parent.mkdir(parents=True)
    sample.write_bytes(b"samples")

    commit(run, 1, {"reward/mean": 0.5})

    record = read_commit(run, 1)
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
