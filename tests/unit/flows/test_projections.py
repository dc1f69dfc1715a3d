"""What MLflow is sent of a step, and what the terminal and Prefect's page show of it."""

from pathlib import Path

import pytest
from rich.table import Table

from configs.schema import Recipe
from flows import cli, projections
from flows.projections import Projections, _changes
from tasks.records.samples import SCORED, SampleRow, write_samples
from tasks.run.directory import Run
from tasks.run.ledger import commit
from tasks.tracking.away import Sparing

SHARDS = 2
GREEDY = "eval/heldout/greedy_accuracy"


class Sent:
    """A tracker that keeps the tables which it was given."""

    def __init__(self, run: Run) -> None:
        self.tables: dict[int, list[SampleRow]] = {}

    def project(self) -> None: ...
    def log_samples(self, step: int, rows: list[SampleRow]) -> None:
        self.tables[step] = rows


def test_a_table_of_samples_has_those_of_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"name": "r", "steps": 4, "tracking": {"table_every": 2}, "rollout": {"shards": SHARDS}}
    run = Run(tmp_path / "runs" / "r", Recipe.model_validate(settings))
    for step in range(3):
        for shard in range(2 * SHARDS if step else 0):
            write_samples(run.step_file(step, f"scored-{shard:02d}.parquet"), [{"group": shard}], SCORED)
        commit(run, step, {})
    monkeypatch.setattr(projections, "Tracker", Sent)

    shown = Projections(run)
    for step in range(3):
        shown.project(step)

    sent = shown._tracker
    assert isinstance(sent, Sent)
    assert {step: [row["group"] for row in rows] for step, rows in sent.tables.items()} == {2: [0, 1, 2, 3]}


def test_u08_the_summary_says_where_an_evaluation_has_no_accuracy(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "r", Recipe(name="r"))
    measured = {
        f"{GREEDY}{end}": value for end, value in {"": 0.5, "_low": 0.25, "_high": 0.75, "_scored": 1.0}.items()
    }
    commit(run, 0, {f"{GREEDY}_scored": 0.0})
    commit(run, 1, measured)

    assert _changes(run)[GREEDY] == "no answer could be scored → 0.500 [0.250, 0.750]"


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Projections:
    """Of a run with two committed steps, and a page that takes everything."""
    run = Run(tmp_path / "runs" / "r", Recipe(name="r", steps=4))
    for step in range(2):
        commit(run, step, {"reward/mean": step / 4, "perf/rollout_tokens_per_second": 812.3})
    monkeypatch.setattr(projections, "Tracker", Sent)
    monkeypatch.setattr(projections, "create_progress_artifact", lambda percent, description: "an id")
    monkeypatch.setattr(projections, "update_progress_artifact", lambda artifact, percent: None)
    made = Projections(run)
    made._has_begun = True
    return made


def test_without_a_screen_there_is_a_line_a_step(shown: Projections, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(2):
        shown.project(step)

    assert capsys.readouterr().out.splitlines() == [
        "step 0 of 4  reward 0.00  812 tokens/s",
        "step 1 of 4  reward 0.25  812 tokens/s",
    ]


def test_a_page_that_can_not_be_written_is_said_once_and_stops_nothing(
    shown: Projections, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("nobody listens")

    monkeypatch.setattr(projections, "create_progress_artifact", refuse)
    for step in (0, 1, 1, 1):
        shown.project(step)

    assert caplog.text.count("its page is late") == 1


def test_a_page_that_comes_back_shows_how_far_the_run_is(shown: Projections, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[float] = []
    updated: list[float] = []

    def create(percent: float, description: str) -> str:
        created.append(percent)
        if len(created) == 1:
            raise OSError("nobody listens")
        return "an id"

    monkeypatch.setattr(projections, "create_progress_artifact", create)
    monkeypatch.setattr(projections, "update_progress_artifact", lambda _, percent: updated.append(percent))
    for step in (0, 1):
        shown.project(step)
        shown._page = Sparing()  # as if enough time had passed
    shown.project(1)

    assert (created, updated) == ([0.0, 25.0], [25.0])


def test_a_long_address_is_not_cut_without_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"postgresql://mlflow.example/{'x' * 300} run {'0123456789abcdef' * 2}"
    table = Table("what", "where")
    table.add_row("mlflow", address)

    cli.console.print(table)

    assert address in capsys.readouterr().out
