import os
from pathlib import Path

import pytest

from trainer.files import written_at_once


def test_the_folder_appears_when_it_is_complete(tmp_path: Path):
    with written_at_once(tmp_path / "out") as folder:
        (folder / "file").write_text("content")
        assert not (tmp_path / "out").exists()

    assert (tmp_path / "out" / "file").read_text() == "content"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("replaced", [False, True], ids=["new", "replaced"])
def test_the_files_are_on_the_disk_before_the_name_and_the_name_before_the_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
):
    target, seen = tmp_path / "out", []
    if replaced:
        target.mkdir()

    def note(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append(("folder of all" if path == tmp_path else path.name, (target / "file").exists()))

    monkeypatch.setattr(os, "fsync", note)
    with written_at_once(target) as folder:
        (folder / "inner").mkdir()
        for name in ("file", "inner/part"):
            (folder / name).write_text("content")

    assert sorted(seen[:-2]) == [("file", False), ("inner", False), ("part", False)]
    assert seen[-2] == (folder.name, False)
    assert seen[-1] == ("folder of all", True)


def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")

    with pytest.raises(OSError, match="disk"), written_at_once(tmp_path / "out") as folder:
        (folder / "file").write_text("half")
        raise OSError("disk full")

    assert (tmp_path / "out" / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_existing_folder_is_replaced_as_a_whole(tmp_path: Path):
    for name in ("first", "second"):
        with written_at_once(tmp_path / "out") as folder:
            (folder / name).touch()

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["second"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
