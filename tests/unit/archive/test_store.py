"""A copy of a run is one of a committed step, whole, whenever it is looked at; and a run can be had back from it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from safetensors.numpy import save_file

from configs.errors import UserError
from configs.schema import Recipe
from tasks.archive.store import copy_run, fetch_run, opened
from tasks.run.directory import Run
from tasks.run.identity import identity
from tasks.run.ledger import commit, committed_steps, create_run, forget_weights
from tasks.run.stores import check_store
from tasks.run.verify import verify
from trainer.files import write_json, written_at_once
from trainer.state.manifest import write_manifest

ADDRESS = "memory://bucket/copies"


@pytest.fixture(autouse=True)
def bucket() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of which step 0 is committed, with a policy that a cold start made."""
    settings = {"name": "r", "steps": 4, "cold_start": {"steps": 1}, "learner": {"checkpoint_every": 2}}
    run = create_run(tmp_path / "home", Recipe.model_validate(settings))
    policy = run.home / "cache" / "cold-start" / "abc"
    policy.mkdir(parents=True)
    (policy / "model.safetensors").write_text("the policy")
    write_json(run.step_file(0, "policy.json"), {"folder": "cache/cold-start/abc", "metrics": {}})
    go_on(run, 0)
    return run


def go_on(run: Run, step: int) -> None:
    """Make and commit a step, as the flow does."""
    run.step_file(step, "scored-00.parquet").parent.mkdir(parents=True, exist_ok=True)
    run.step_file(step, "scored-00.parquet").write_text(f"samples {step}")
    with written_at_once(run.weights(step)) as folder:
        save_file({"of": np.array([step])}, folder / "model.safetensors")
    if step and run.recipe.checkpoints(step):
        with written_at_once(run.checkpoint(step)) as folder:
            (folder / ".metadata").write_text("what is where")
            (folder / "state.distcp").write_text(f"state {step}")
            write_manifest(folder, step, identity(run))
    commit(run, step, {})
    forget_weights(run, before=step)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(bucket: Any, run: Run) -> set[str]:
    root = f"/bucket/copies/{run.id}/"
    return {path.removeprefix(root) for path in bucket.find(root)}


def test_a_run_fetched_on_another_machine_is_the_same_with_the_policy_that_it_started_from(run: Run, tmp_path: Path):
    for step in (1, 2):
        go_on(run, step)
    copied = copy_run(run, ADDRESS)

    fetched = fetch_run(tmp_path / "elsewhere", copied["address"])

    assert fetched.recipe == run.recipe
    assert files(fetched.root) == files(run.root)
    assert files(fetched.home / "cache") == files(run.home / "cache")


def test_a_second_copy_sends_what_is_new_alone(run: Run):
    first = copy_run(run, ADDRESS)
    go_on(run, 1)
    second = copy_run(run, ADDRESS)

    assert first["step"] == 0 and second["step"] == 1
    # The samples and the record of step 1, and the two files of the run that change.
    assert second["files"] == 4


def test_weights_of_versions_that_a_resume_can_make_again_are_not_sent(run: Run, bucket: Any):
    for step in (1, 2, 3):
        go_on(run, step)
        copy_run(run, ADDRESS)

    assert run.weights(3).exists()
    assert not {name for name in stored(bucket, run) if name.startswith("weights/000003")}


def test_weights_and_checkpoints_that_the_run_let_go_go_from_the_copy(run: Run, bucket: Any):
    for step in (1, 2, 3, 4):
        go_on(run, step)
        copy_run(run, ADDRESS)
    shutil.rmtree(run.checkpoint(2))
    copy_run(run, ADDRESS)

    kinds = ("weights", "checkpoints")
    kept = {name.rsplit("/", 1)[0] for name in stored(bucket, run) if name.startswith(kinds)}
    assert kept == {"weights/000000", "weights/000004", "checkpoints/000004"}


@pytest.mark.parametrize("calls", range(10))
def test_a_copy_that_is_cut_short_anywhere_leaves_the_one_before(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
):
    go_on(run, 1)
    address = copy_run(run, ADDRESS)["address"]
    before = files(run.root)
    go_on(run, 2)
    left = calls

    def cut(call: Any) -> Any:
        def may_fail(self: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("connection lost")
            return call(self, *arguments, **named)

        return may_fail

    with monkeypatch.context() as patched:
        for name in ("put_file", "pipe_file", "cp_file", "rm_file"):
            patched.setattr(MemoryFileSystem, name, cut(getattr(MemoryFileSystem, name)))
        with pytest.raises(OSError, match="connection lost"):
            copy_run(run, ADDRESS)

    fetched = fetch_run(tmp_path / "between", address)
    assert committed_steps(fetched) == [0, 1]
    steps = {name: content for name, content in before.items() if name.startswith("steps")}
    assert files(fetched.root).items() >= steps.items()
    assert verify(fetched) == []

    copy_run(run, ADDRESS)
    assert committed_steps(fetch_run(tmp_path / "after", address)) == [0, 1, 2]


def test_a_file_that_is_not_what_was_sent_is_named_and_nothing_is_left_here(run: Run, tmp_path: Path, bucket: Any):
    address = copy_run(run, ADDRESS)["address"]
    bucket.pipe_file(f"/bucket/copies/{run.id}/steps/000000/scored-00.parquet", b"other samples")

    with pytest.raises(UserError, match=r"is damaged: steps/000000/scored-00.parquet is not what was sent"):
        fetch_run(tmp_path / "elsewhere", address)

    assert not list((tmp_path / "elsewhere" / "runs").iterdir())


def test_a_file_that_is_lost_is_named(run: Run, tmp_path: Path, bucket: Any):
    address = copy_run(run, ADDRESS)["address"]
    bucket.rm_file(f"/bucket/copies/{run.id}/steps/000000/commit.json")

    with pytest.raises(UserError, match=r"lacks a file: .*000000/commit.json"):
        fetch_run(tmp_path / "elsewhere", address)


def test_a_run_that_is_here_is_not_fetched(run: Run):
    address = copy_run(run, ADDRESS)["address"]
    go_on(run, 1)

    assert opened(run.home, address) == opened(run.home, run.id) == run


def test_a_run_here_that_is_behind_its_copy_is_not_gone_on_with(run: Run, tmp_path: Path):
    address = copy_run(run, ADDRESS)["address"]
    fetched = fetch_run(tmp_path / "elsewhere", address)
    go_on(run, 1)
    copy_run(run, ADDRESS)

    with pytest.raises(UserError, match=r"is at step 0, and its copy in memory://.* at step 1"):
        fetch_run(fetched.home, address)
    with pytest.raises(UserError, match=r"as of step 1, and .* is at step 0: another goes on with that run"):
        copy_run(fetched, ADDRESS)


def test_an_address_of_no_copy_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"memory://bucket/nothing is no copy of a run"):
        fetch_run(tmp_path, "memory://bucket/nothing")


def test_a_store_that_fsspec_does_not_know_is_refused():
    with pytest.raises(UserError, match=r"parchment://x can't be used: .*[Pp]rotocol"):
        check_store("parchment://x")


def test_a_store_that_can_not_be_read_says_why_without_a_password(monkeypatch: pytest.MonkeyPatch):
    def refuse(self: object, path: str) -> bool:
        raise PermissionError(f"memory://me:hunter2@bucket{path}: access denied")

    monkeypatch.setattr(MemoryFileSystem, "exists", refuse)
    with pytest.raises(UserError, match="access denied") as refused:
        check_store("memory://bucket")
    assert "hunter2" not in str(refused.value)


def test_files_go_to_folders_that_are_made(run: Run, tmp_path: Path):
    copied = copy_run(run, f"file://{tmp_path}/mounted/copies")

    assert (tmp_path / "mounted" / "copies" / run.id / "steps" / "000000" / "commit.json").exists()
    assert files(fetch_run(tmp_path / "elsewhere", copied["address"]).root) == files(run.root)
