"""What MLflow is sent of a step."""

from pathlib import Path

import pytest

from configs.schema import Recipe
from flows import projections
from flows.projections import Projections, _changes
from tasks.records.samples import SCORED, SampleRow, write_samples
from tasks.run.directory import Run
from tasks.run.ledger import commit

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
