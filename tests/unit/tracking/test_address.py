"""MLflow's address is shown without user and password, which MLflow's own variables take."""

import logging
from pathlib import Path

import pytest

from configs.loader import load_recipe
from tasks.run.ledger import create_run
from tasks.tracking import tracker as tracker_module
from tasks.tracking.tracker import Tracker, hide_password


def test_the_password_of_a_server_goes_to_the_variable_that_mlflow_reads() -> None:
    environment = {"MLFLOW_TRACKING_URI": "https://me:a%40b@mlflow:5000/path"}

    hide_password(environment)

    assert environment == {
        "MLFLOW_TRACKING_URI": "https://mlflow:5000/path",
        "MLFLOW_TRACKING_USERNAME": "me",
        "MLFLOW_TRACKING_PASSWORD": "a@b",
    }


def test_what_is_set_there_already_stays() -> None:
    environment = {"MLFLOW_TRACKING_URI": "http://me:old@mlflow", "MLFLOW_TRACKING_PASSWORD": "new"}

    hide_password(environment)

    assert environment["MLFLOW_TRACKING_PASSWORD"] == "new"


@pytest.mark.parametrize("address", [None, "http://mlflow:5000", "postgresql://me:secret@db/mlflow", "databricks"])
def test_an_address_without_one_or_of_a_database_stays(address: str | None) -> None:
    environment = {} if address is None else {"MLFLOW_TRACKING_URI": address}
    before = dict(environment)

    hide_password(environment)

    assert environment == before


def test_neither_where_a_run_is_tracked_nor_a_failure_repeats_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = "postgresql://me:secret@db/mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    def refuse(address: str) -> None:
        raise ConnectionError(f"no answer from {address}")

    monkeypatch.setattr(tracker_module.mlflow, "MlflowClient", refuse)
    tracker = Tracker(create_run(tmp_path, load_recipe("r1")))
    with caplog.at_level(logging.WARNING):
        tracker.project()

    assert tracker.location.startswith("postgresql://db/mlflow run")
    assert "no answer from postgresql://db/mlflow" in caplog.text
    assert "secret" not in caplog.text + tracker.location
