"""`rl-post runs` and `rl-post show` read a run's state and story off its directory."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from configs.loader import load_recipe
from flows import runs
from flows.runs import list_runs, state, summaries, tell
from tasks.cluster.limits import duration
from tasks.run.directory import Run
from tasks.run.events import record
from tasks.run.ledger import commit, create_run
from tasks.run.lock import hold, this_process
from tasks.run.resume import check_resume, go_on
from trainer.files import write_json


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of two steps, the first of which is committed."""
    run = create_run(tmp_path, load_recipe("r1", ["steps=2"]))
    commit(run, 0, {"eval/heldout/sampled_accuracy": 0.25})
    commit(run, 1, {"reward/mean": 0.5, "time/rollout": 1.25, "time/update": 2.0})
    return run


@pytest.fixture
def page() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(page: Console) -> str:
    assert isinstance(page.file, io.StringIO)
    return page.file.getvalue()


def test_a_run_whose_driver_lives_is_running(run: Run) -> None:
    with hold(run):
        assert state(run) == "running"


def test_a_run_whose_driver_was_killed_is_stopped_even_if_it_had_failed_before(run: Run) -> None:
    record(run.events, "failed")
    write_json(run.root / "lock.json", this_process() | {"started": 1})

    assert state(run) == "stopped"


@pytest.mark.parametrize(("event", "expected"), [("failed", "failed"), ("interrupted", "stopped")])
def test_a_run_that_ended_early_says_how(run: Run, event, expected: str) -> None:
    record(run.events, event)

    assert state(run) == expected


def test_a_run_with_all_its_steps_is_finished_until_it_gets_more(run: Run) -> None:
    commit(run, 2, {})
    assert state(run) == "finished"

    assert state(go_on(run, check_resume(run, ["steps=3"]))) == "stopped"


def test_the_table_shows_the_latest_of_each_number(run: Run, page: Console) -> None:
    list_runs(run.home, page)

    (line,), _ = summaries(run.home)
    assert (line.run, line.recipe, line.state, line.step, line.steps) == (run.id, "r1", "stopped", 1, 2)
    assert line.latest == {"reward/mean": 0.5, "eval/heldout/sampled_accuracy": 0.25}
    assert all(text in printed(page) for text in (run.id, "1 of 2", "0.50", "0.25"))


def test_what_is_no_run_of_this_version_is_named_in_a_line_of_its_own(run: Run, page: Console) -> None:
    runs = run.home / "runs"
    (runs / "stranger").mkdir()
    (runs / ".hidden").mkdir()
    write_json(runs / "old" / "run.json", {"format": 1})
    damaged = create_run(run.home, run.recipe)
    commit(damaged, 0, {})
    damaged.step_file(0, "commit.json").write_text("{")

    list_runs(run.home, page)

    found, left_out = summaries(run.home)
    assert [line.run for line in found] == [run.id]
    assert left_out == [line.removeprefix("left out: ") for line in printed(page).splitlines()[-3:]]
    assert f"{runs / 'old'} has format 1" in left_out[0]
    assert "commit.json is damaged" in left_out[1]
    assert f"{runs / 'stranger'} is no run" in left_out[2]


def test_a_lock_that_is_given_back_while_it_is_looked_at_is_nobodys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "read_owner", lambda run: this_process() | {"place": "elsewhere"})

    assert state(run) == "stopped"


def test_a_home_without_runs_says_how_to_begin_one(tmp_path: Path, page: Console) -> None:
    list_runs(tmp_path, page)

    assert "rl-post run" in printed(page)


def test_the_story_has_the_steps_the_changes_and_what_happened(run: Run, page: Console) -> None:
    go_on(run, check_resume(run, ["steps=3"]))
    record(run.events, "engine lost", engine="engine-0", why="no sign of life for 120 s")

    tell(run, page)

    said = printed(page)
    assert "best: nothing was evaluated yet" in said
    assert "on the disk: weights none; checkpoints none" in said
    assert "steps: 2 → 3 after step 1" in said
    assert "1.25" in said and "2.00" in said
    assert "engine lost  engine: engine-0  why: no sign of life for 120 s" in said


def test_the_story_names_the_best_version_and_what_is_on_the_disk(run: Run, page: Console) -> None:
    commit(run, 2, {"eval/heldout/sampled_accuracy": 0.125})
    for version in (0, 1, 2):
        run.weights(version).mkdir(parents=True)
    run.checkpoint(2).mkdir(parents=True)

    tell(run, page)

    assert f"best: version 0, accuracy 0.250, in {run.weights(0)}\n" in printed(page)
    assert "on the disk: weights 0, 1, 2; checkpoints 2\n" in printed(page)


def test_u08_the_story_says_what_a_step_could_not_score(run: Run, page: Console) -> None:
    lost = {"wrong": 3.0, "error": 5.0, "timeout": 1.0, "unscorable": 0.0}
    commit(run, 2, {f"reward/status/{status}": count for status, count in lost.items()})

    tell(run, page)

    assert "1 timeout, 5 error" in printed(page)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (2e5, "2 d")])
def test_a_length_of_time_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
