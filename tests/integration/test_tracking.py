"""A real MLflow store: one run a training run for life, every committed point once, and no way to stop training."""

import socket
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import LifecycleStage, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

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


def test_u31_a_parameter_whose_name_mlflow_refuses_is_there_by_another_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = ["tools@v2", "50%", "a[0]", "über", "x=1", "tools_at_v2"]
    named = ",".join(f"'{name}': {number}" for number, name in enumerate(settings))
    run = create_run(home, load_recipe("r1", [f"data.chat_template_settings={{{named}}}"]))
    commit(run, 0, {"reward/mean": 0.5})

    Tracker(run).finish("FINISHED")

    data = stored(run)[1].data
    assert data.metrics["reward/mean"] == 0.5
    assert data.params["steps"] == str(run.recipe.steps)
    values = {key: value for key, value in data.params.items() if key.startswith("data.chat_template_settings.")}
    assert sorted(values.values()) == ["0", "1", "2", "3", "4", "5"]  # `tools@v2` and `tools_at_v2` are both there.
    assert values["data.chat_template_settings.tools_at_v2"] == "0"


@pytest.mark.parametrize("name", ["bob's", 'say "hi"', "both ' and \"", "50% `more`"])
def test_u31_a_recipe_may_have_any_file_name(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = create_run(home, load_recipe("r1").model_copy(update={"name": name}))
    commit(run, 0, {"reward/mean": 0.5})

    Tracker(run).finish("FINISHED")

    assert history(run, "reward/mean") == [(0, 0.5)]
    assert stored(run)[1].data.params["name"] == name


def test_u31_a_run_with_a_quotation_mark_in_its_id_of_an_earlier_version_is_found_again(run: Run) -> None:
    old = run.root.rename(run.root.with_name("bob's-20260101-000000-abcd"))
    renamed = Run(old, run.recipe)
    commit(renamed, 0, {"reward/mean": 0.5})
    Tracker(renamed).finish("FAILED")
    renamed.tracked.unlink()  # As if its driver had died before it wrote the id down.

    Tracker(renamed).finish("FINISHED")

    client = mlflow.MlflowClient(tracking_uri(renamed))
    experiment = client.get_experiment_by_name("rl-post")
    assert experiment
    found = client.search_runs([experiment.experiment_id], f'tags.`rl_post.run` = "{renamed.id}"')
    assert [one.info.status for one in found] == ["FINISHED"]


@pytest.mark.parametrize(
    "deleted", ["experiment before", "experiment in mid-run", "run in mid-run", "run, then resumed"]
)
def test_u31_what_somebody_deleted_in_the_page_is_restored(
    run: Run, caplog: pytest.LogCaptureFixture, deleted: str
) -> None:
    name = f"deleted {deleted}"
    run = Run(
        run.root,
        run.recipe.model_copy(update={"tracking": run.recipe.tracking.model_copy(update={"experiment": name})}),
    )
    client = mlflow.MlflowClient(tracking_uri(run))
    experiment = client.create_experiment(name, str(run.home / "artifacts"))
    tracker = Tracker(run)
    if deleted == "experiment before":
        client.delete_experiment(experiment)
    commit(run, 0, {"reward/mean": 0.0})
    tracker.project()
    if deleted == "experiment in mid-run":
        client.delete_experiment(experiment)
    if deleted.startswith("run"):
        client.delete_run(read_json(run.tracked)["run_id"])
    if deleted == "run, then resumed":
        tracker = Tracker(run)
    commit(run, 1, {"reward/mean": 0.1})
    tracker.finish("FINISHED")

    (found,) = client.search_runs([experiment])
    assert found.info.lifecycle_stage == LifecycleStage.ACTIVE
    assert [point.value for point in client.get_metric_history(found.info.run_id, "reward/mean")] == [0.0, 0.1]
    assert caplog.text.count("It is restored") == deleted.startswith("experiment")


def test_u32_recipes_that_differ_only_where_mlflow_cuts_have_different_digests(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    prompts = ["x" * 7000 + end for end in ("first", "second", "second")]
    runs = [create_run(home, load_recipe("r1", [f"data.system_prompt={prompt}"])) for prompt in prompts]
    for run in runs:
        Tracker(run).finish("FINISHED")

    found = [stored(run)[1].data for run in runs]
    first, second, same = [data.tags["rl_post.recipe"] for data in found]
    assert first != second == same
    assert len({data.params["data.system_prompt"] for data in found}) == 1


@pytest.mark.parametrize("refused", ["optimizer.learning_rate", "reward/mean", "rl_post.recipe"])
def test_one_value_that_mlflow_rejects_keeps_no_other_away(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    log_batch = mlflow.MlflowClient.log_batch

    def reject(client: Any, run_id: str, metrics: list[Metric], params: list[Param], tags: list[RunTag]) -> None:
        if any(entry.key == refused for entry in (*metrics, *params, *tags)):
            raise MlflowException("no such thing", error_code=1000)  # INVALID_PARAMETER_VALUE
        log_batch(client, run_id, metrics, params, tags)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", reject)
    commit(run, 0, {"reward/mean": 0.5, "policy/loss": 1.0, "perf/tokens": 3.0})

    Tracker(run).finish("FINISHED")

    data = stored(run)[1].data
    there = {**data.params, **data.metrics, **data.tags}
    wanted = {"optimizer.learning_rate", "steps", "reward/mean", "policy/loss", "perf/tokens", "rl_post.recipe"}
    assert wanted - there.keys() == {refused}
    assert caplog.text.count("refuses") == 1


def test_a_table_that_mlflow_rejects_is_left_out_once_and_what_comes_after_it_is_sent(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def reject(*_: Any) -> None:
        raise MlflowException("not this", error_code=1000)

    tracker = Tracker(run)
    monkeypatch.setattr(mlflow.MlflowClient, "log_table", reject)
    tracker.log_samples(20, [])
    tracker.log_text("after it", "after.md")
    tracker.finish("FINISHED")

    client, found = stored(run)
    assert "after.md" in [file.path for file in client.list_artifacts(found.info.run_id)]
    assert caplog.text.count("left out") == 1


def test_an_mlflow_that_never_answers_costs_a_tenth_of_the_time_and_gets_everything_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that takes connections and says nothing, in mid-run: asked again after nine times as long."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    commit(run, 0, {"reward/mean": 0.0})
    tracker = Tracker(run)
    asked = 0
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as away:
        silent.setblocking(False)
        away.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for step in range(1, 30):
            tracker.project()
            commit(run, step, {"reward/mean": step / 10})
        taken = []
        while True:
            try:
                taken.append(silent.accept()[0])
            except BlockingIOError:
                break
        asked = len(taken)
        for connection in taken:
            connection.close()
    tracker.finish("FINISHED")

    assert 1 <= asked <= 3  # of 29 steps
    assert [step for step, _ in history(run, "reward/mean")] == list(range(30))
