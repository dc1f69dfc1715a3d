from pathlib import Path

import pytest

from trainer.folders import written_at_once


def test_the_folder_appears_when_it_is_complete(tmp_path: Path):
    with written_at_once(tmp_path / "out") as folder:
        (folder / "file").write_text("content")
        assert not (tmp_path / "out").exists()

    assert (tmp_path / "out" / "file").read_text() == "content"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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
