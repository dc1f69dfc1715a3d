import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainer.state import checkpoint
from trainer.state.checkpoint import IncompleteCheckpoint


def state(value: float) -> dict[str, Tensor]:
    return {
        "weight": torch.full((3, 2), value),
        "weight.exp_avg": torch.full((3, 2), value / 3),
        "step": torch.tensor(value),
    }


def equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_checkpoint_gives_back_the_same_bits_in_place_and_the_version(tmp_path: Path):
    checkpoint.save(tmp_path / "20", state(0.1), version=20, run="r")
    live = state(7.0)
    weight = live["weight"]

    assert checkpoint.load(tmp_path / "20", live, run="r") == 20

    assert equal(live, state(0.1))
    assert live["weight"] is weight


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("pattern", ["*.distcp", ".metadata", "manifest.json"])
@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(
    tmp_path: Path, pattern: str, damage: Callable[[Path], None]
):
    checkpoint.save(tmp_path / "20", state(1.0), version=20, run="r")
    damage(next((tmp_path / "20").glob(pattern)))
    live = state(7.0)

    with pytest.raises(IncompleteCheckpoint, match=r"20.*load an older checkpoint"):
        checkpoint.load(tmp_path / "20", live, run="r")

    assert equal(live, state(7.0))


def test_a_checkpoint_is_on_the_disk_before_its_name_and_the_name_before_the_learner_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target, seen = tmp_path / "20", []

    def note(descriptor: int) -> None:
        seen.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, target.exists()))

    monkeypatch.setattr(os, "fsync", note)
    checkpoint.save(target, state(1.0), version=20, run="r")

    stored = {path.name for path in target.iterdir()}
    assert {"manifest.json", ".metadata"} < stored
    assert stored | {".20.tmp"} <= {name for name, _ in seen[:-1]}
    assert {there for _, there in seen[:-1]} == {False}
    assert seen[-1] == (tmp_path.name, True)


def test_a_killed_writer_leaves_the_checkpoints_before_and_none_of_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint.save(tmp_path / "10", state(1.0), version=10, run="r")
    # The last moment at which it can be killed in the middle: all is written, and nothing has its name.
    monkeypatch.setattr(checkpoint, "put_in_place", lambda temporary, folder: os.kill(os.getpid(), signal.SIGKILL))
    writer = os.fork()
    if writer == 0:
        checkpoint.save(tmp_path / "20", state(2.0), version=20, run="r")
    _, status = os.waitpid(writer, 0)
    monkeypatch.undo()

    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not (tmp_path / "20").exists()
    live = state(7.0)
    assert checkpoint.load(tmp_path / "10", live, run="r") == 10
    assert equal(live, state(1.0))


def test_what_a_killed_writer_left_does_not_hinder_the_next(tmp_path: Path):
    (tmp_path / ".20.tmp").mkdir()
    (tmp_path / ".20.tmp" / "__0_0.distcp").write_bytes(b"half")

    with pytest.raises(IncompleteCheckpoint, match=r"has no manifest\.json"):
        checkpoint.load(tmp_path / "20", state(7.0), run="r")
    checkpoint.save(tmp_path / "20", state(2.0), version=20, run="r")

    assert [path.name for path in tmp_path.iterdir()] == ["20"]
    assert checkpoint.load(tmp_path / "20", state(7.0), run="r") == 20


def test_a_checkpoint_is_replaced_by_the_next_of_its_name(tmp_path: Path):
    checkpoint.save(tmp_path / "20", state(1.0), version=20, run="r")
    checkpoint.save(tmp_path / "20", state(2.0), version=21, run="r")

    assert [path.name for path in tmp_path.iterdir()] == ["20"]
    assert json.loads((tmp_path / "20" / "manifest.json").read_text())["version"] == 21


def test_a_checkpoint_of_another_recipe_or_dataset_is_not_loaded(tmp_path: Path):
    checkpoint.save(tmp_path / "20", state(1.0), version=20, run="r")
    live = state(7.0)

    with pytest.raises(checkpoint.IncompleteCheckpoint, match="20 is of another recipe or dataset"):
        checkpoint.load(tmp_path / "20", live, run="another")

    assert all(torch.equal(live[name], kept) for name, kept in state(7.0).items())
