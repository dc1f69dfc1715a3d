"""The story of a run: lines of several writers, none lost, and none that could stop a run."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.run.events import read_events, record


def test_events_are_read_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "events.jsonl"

    record(path, "started", steps=3)
    record(path, "finished")

    assert [(event["event"], event.get("steps")) for event in read_events(path)] == [("started", 3), ("finished", None)]


def test_a_run_without_events_has_none(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events.jsonl") == []


def test_an_address_in_an_error_is_noted_without_its_password(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    record(path, "failed", error="404 for url 'http://me:secret@prefect:4200/api'")

    assert "secret" not in path.read_text()
    assert [event["error"] for event in read_events(path)] == ["404 for url 'http://prefect:4200/api'"]


def test_lines_of_many_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: record(path, "task failed", number=number, why="x" * 3000), range(200)))

    assert sorted(event["number"] for event in read_events(path)) == list(range(200))


def test_a_line_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    record(path, "started")
    with path.open("a") as file:
        file.write('{"event": "engi\n')
    record(path, "finished")

    assert [event["event"] for event in read_events(path)] == ["started", "finished"]


def test_a_full_disk_costs_the_line_and_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "events.jsonl"
    path.symlink_to("/dev/full")

    record(path, "started")

    assert "No space left on device" in caplog.text
