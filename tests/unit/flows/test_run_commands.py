"""The commands about runs, up to where they would start something."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from configs.errors import UserError
from configs.loader import load_recipe
from flows.cli import app
from flows.runs import list_runs
from tasks.run.directory import Run
from tasks.run.ledger import commit, create_run
from tasks.run.lock import hold
from trainer.files import write_json


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("RL_POST_HOME", str(tmp_path))
    run = create_run(tmp_path, load_recipe("r1"))
    write_json(run.step_file(0, "policy.json"), {})
    commit(run, 0, {})
    (run.root / "weights").mkdir()
    return run


def call(*arguments: str):
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


BARS = """
def show_bars() -> None:
    import datasets, tqdm.auto
    from transformers.utils import logging
    rows = datasets.Dataset.from_list([{"a": 1}]).map(lambda row: row)
    list(tqdm.auto.tqdm(rows)), list(logging.tqdm(rows)), list(datasets.utils.tqdm(rows))
    print("done")

from flows import cli
cli.app = show_bars
cli.main()
"""


def test_no_bar_of_a_library_is_shown() -> None:
    done = subprocess.run([sys.executable, "-c", BARS], capture_output=True, text=True, timeout=300)

    assert (done.stdout, done.stderr) == ("done\n", "")


def test_damage_is_named_with_exit_code_1(run: Run) -> None:
    run.step_file(0, "policy.json").write_text("{")

    done = call("verify", run.id)

    assert done.exit_code == 1
    assert "steps/000000/policy.json is damaged" in done.output
    assert "1 committed steps, 2 problems" in done.output  # It has no weights either.


def test_runs_and_show_name_the_run(run: Run) -> None:
    narrow = Console(file=io.StringIO(), width=60)
    list_runs(run.home, narrow)

    assert isinstance(narrow.file, io.StringIO) and run.id in narrow.file.getvalue()
    assert run.id in call("runs").output
    assert run.id in call("show", run.id).output
    assert run.id in call("show", str(run.root)).output


@pytest.mark.parametrize("command", ["show", "verify", "resume"])
def test_a_run_that_is_not_there_is_a_users_mistake(run: Run, command: str) -> None:
    assert isinstance(call(command, "nope").exception, UserError)


@pytest.mark.parametrize("command", ["show", "verify", "resume"])
@pytest.mark.parametrize("text", ["", "{", '{"format": 1}'], ids=["empty", "torn", "of an older format"])
def test_a_run_of_another_format_or_without_its_record_is_a_users_mistake(run: Run, command: str, text: str) -> None:
    (run.root / "run.json").write_text(text)

    error = call(command, run.id).exception

    assert isinstance(error, UserError) and str(run.root) in str(error)


def test_a_run_that_is_being_run_is_listed_told_and_checked_as_such(run: Run) -> None:
    with hold(run):
        assert "running" in call("runs").output
        assert "running, held by process" in call("show", run.id).output
        assert f"{run.id} is being run" in call("verify", run.id).output
    assert "is being run" not in call("verify", run.id).output


def test_a_damaged_lock_or_event_is_one_line(run: Run) -> None:
    run.logs.mkdir()
    run.events.write_text('3\n{"half": 1}\n{"ti')
    assert run.id in call("show", run.id).output

    (run.root / "lock.json").write_text("")
    for arguments in (["show", run.id], ["verify", run.id], ["resume", run.id]):
        error = call(*arguments).exception
        assert isinstance(error, UserError) and "lock.json is damaged" in str(error)
    assert "lock.json is damaged" in call("runs").output


def test_a_run_that_is_being_run_is_not_resumed(run: Run) -> None:
    with hold(run):
        done = call("resume", run.id)

    assert isinstance(done.exception, UserError)
    assert "is being run by process" in str(done.exception)


def test_a_run_is_not_resumed_as_another_one(run: Run) -> None:
    done = call("resume", run.id, "seed=5")

    assert isinstance(done.exception, UserError)
    assert "another seed" in str(done.exception)
