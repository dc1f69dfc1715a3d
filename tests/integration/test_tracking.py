"""A real MLflow store: one run a training run for life, every committed point once, and no way to stop training."""

from pathlib import Path

import mlflow
import pytest

from configs.loader import load_recipe
from tasks.run.directory import Run
from tasks.run.ledger import commit, create_run
from tasks.run.resume import check_resume, go_on
from tasks.tracking.tracker import ALIAS, COMMITTED, Tracker, tracking_uri
from trainer.files import read_json, write_json


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sqlite store for all tests here: making its tables takes seconds."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return create_run(home, load_recipe("r1", ["optimizer.learning_rate=1e-6"]))


def stored(run: Run):
    """Return the one MLflow run of a training run."""
    client = mlflow.MlflowClient(tracking_uri(run))
    experiment = client.get_experiment_by_name("rl-post")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], f"tags.`rl_post.run` = '{run.id}'")
    assert len(found) == 1
    return client, found[0]


def history(run: Run, name: str) -> list[tuple[int, float]]:
    client, found = stored(run)
    return [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]


def test_a_run_is_stored_with_its_recipe_its_data_and_its_code(run: Run) -> None:
    tracker = Tracker(run)
    tracker.log_dataset({"path": "/data/prepared", "digest": "d1"})
    tracker.finish("FINISHED")

    client, found = stored(run)
    assert found.info.status == "FINISHED"
    assert found.data.params["optimizer.learning_rate"] == "1e-06"
    assert found.inputs is not None
    assert [entry.dataset.digest for entry in found.inputs.dataset_inputs] == ["d1"]
    assert found.data.tags["mlflow.source.git.commit"]
    assert [file.path for file in client.list_artifacts(found.info.run_id)] == ["recipe.yaml"]


def test_a_resumed_run_goes_on_in_the_same_mlflow_run_and_repeats_no_point(run: Run) -> None:
    first = Tracker(run)
    for step in (0, 1):
        commit(run, step, {"reward/mean": step / 10})
        first.project()
    first.finish("FAILED")

    second = Tracker(run)
    commit(run, 2, {"reward/mean": 0.2})
    second.project()
    second.project()
    second.finish("FINISHED")

    assert history(run, "reward/mean") == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert stored(run)[1].info.status == "FINISHED"


def test_an_mlflow_that_does_not_know_the_run_gets_its_whole_history(run: Run) -> None:
    for step in (0, 1):
        commit(run, step, {"reward/mean": step / 10})
    write_json(run.root / "mlflow.json", {"run_id": "0123456789abcdef0123456789abcdef"})  # of another MLflow

    tracker = Tracker(run)
    tracker.project()
    tracker.finish("FINISHED")

    assert history(run, "reward/mean") == [(0, 0.0), (1, 0.1)]
    assert read_json(run.root / "mlflow.json")["run_id"] == stored(run)[1].info.run_id


def test_a_driver_that_died_between_sending_and_noting_it_leaves_no_point_twice(
    run: Run,
) -> None:
    commit(run, 0, {"reward/mean": 0.1})
    first = Tracker(run)
    first.project()
    client, found = stored(run)
    client.set_tag(found.info.run_id, COMMITTED, "-1")  # As if it had died before.
    (run.root / "mlflow.json").unlink()

    Tracker(run).finish("FINISHED")

    assert history(run, "reward/mean") == [(0, 0.1)]


def test_a_setting_that_changed_in_mid_run_is_a_tag_and_the_parameter_stays(run: Run) -> None:
    commit(run, 0, {})
    first = Tracker(run)
    first.finish("FAILED")

    changed = go_on(run, check_resume(run, ["steps=90"]))
    Tracker(changed).finish("FINISHED")
    Tracker(go_on(changed, check_resume(changed, ["steps=90"]))).finish("FINISHED")

    data = stored(run)[1].data
    assert data.tags["rl_post.changed.steps"] == f"{run.recipe.steps} → 90 after step 0"
    assert data.params["steps"] == str(run.recipe.steps)


def test_a_name_or_a_value_that_mlflow_refuses_costs_no_other_point(run: Run) -> None:
    commit(run, 0, {"good": 1.0, "bad@1": 2.0, "worse": float("nan")})

    Tracker(run).finish("FINISHED")

    metrics = stored(run)[1].data.metrics
    assert metrics["good"] == 1.0
    assert metrics["bad_at_1"] == 2.0
    assert metrics["non_finite_metrics"] == 1.0


def test_what_could_not_be_sent_is_sent_when_the_tracker_is_back(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = Tracker(run)
    commit(run, 0, {"reward/mean": 0.1})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # Nothing listens on the discard port.
    tracker.project()
    tracker.log_dataset({"path": "/data/prepared", "digest": "d1"})
    assert "Training goes on" in caplog.text

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    commit(run, 1, {"reward/mean": 0.2})
    tracker.project()
    tracker.finish("FINISHED")

    assert history(run, "reward/mean") == [(0, 0.1), (1, 0.2)]
    inputs = stored(run)[1].inputs
    assert inputs and [entry.dataset.digest for entry in inputs.dataset_inputs] == ["d1"]


def test_a_table_of_samples_is_one_file_a_step_and_sent_again_it_is_the_same(run: Run, tmp_path: Path) -> None:
    row = {"group": 0, "index": 1, "text": "<answer>3</answer>", "gold": "3", "reward": 1.0, "status": "right"}
    tracker = Tracker(run)
    for step in (20, 40, 40):
        tracker.log_samples(step, [{**row, "finish_reason": "stop", "prompt_id": "q"}])
    tracker.finish("FINISHED")

    client, found = stored(run)
    files = [file.path for file in client.list_artifacts(found.info.run_id, "samples")]
    assert files == ["samples/step-000020.json", "samples/step-000040.json"]
    folder = client.download_artifacts(found.info.run_id, "samples", str(tmp_path))
    assert len(read_json(Path(folder) / "step-000040.json")["data"]) == 1


def test_the_final_model_is_registered_once_with_an_alias(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_json(tmp_path / "config.json", {"model_type": "qwen3"})
    tracker = Tracker(run)

    tracker.register(tmp_path, "a-model")
    tracker.register(tmp_path, "a-model")
    tracker.finish("FINISHED")

    client, found = stored(run)
    version = client.get_model_version_by_alias("a-model", ALIAS)
    assert version.run_id == found.info.run_id
    assert int(version.version) == 1
    folder = client.download_artifacts(found.info.run_id, "model", str(tmp_path))
    assert (Path(folder) / "model.safetensors").read_bytes() == b"weights"
