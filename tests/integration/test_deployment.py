"""A long-lived installation: services start, a deployment runs to Completed on a worker, services end."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import mlflow
import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending, Running

from configs.loader import load_recipe
from flows.services import POOL, close_orphans
from tasks.run.directory import Run
from tasks.run.ledger import commit, committed_steps, create_run, open_run
from tasks.tracking.tracker import Tracker
from tests.integration.installation import Installation

SOON = Path(__file__).with_name("renew_soon")
"""Makes a deployed flow renew its lease every six seconds and not every 225."""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    path = os.pathsep.join(filter(None, [str(SOON), os.environ.get("PYTHONPATH")]))
    made = Installation(tmp_path_factory.mktemp("installation"), PYTHONPATH=path)
    made.printed = made.call("rl-post", "up")
    yield made
    made.call("rl-post", "down")
    assert made.marked.processes() == []
    assert not (made.folder / "prefect.toml").exists()


def begun(installation: Installation) -> list[Run]:
    """Wait until there is a run that has begun its work, and return the runs."""
    deadline = time.monotonic() + 120
    while not (begun := list((installation.home / "runs").glob("*/logs/events.jsonl"))):
        assert time.monotonic() < deadline, "no run has begun"
        time.sleep(0.5)
    return [open_run(installation.home, events.parents[1].name) for events in begun]


def test_the_servers_listen_on_loopback_only(installation: Installation) -> None:
    ports = {int(address.rsplit(":", 1)[1]) for address in installation.addresses().values()}

    listening = [c.laddr for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr]
    assert {address.ip for address in listening if address.port in ports} == {"127.0.0.1"}


def test_the_recipes_are_deployed_with_a_form_a_limit_and_a_schedule_that_waits_to_be_switched_on(
    installation: Installation,
) -> None:
    api = f"{installation.addresses()['Prefect']}/api"
    found = {deployment["name"]: deployment for deployment in httpx.post(f"{api}/deployments/filter", json={}).json()}

    assert found.keys() == {"r1", "quickstart", "smollm2"}
    assert found["r1"]["parameters"] == {"recipe": "r1", "overrides": [], "resume": None}
    assert found["r1"]["parameter_openapi_schema"]["properties"].keys() == {"recipe", "overrides", "resume"}
    assert [schedule["active"] for schedule in found["r1"]["schedules"]] == [False]
    assert found["r1"]["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert found["r1"]["global_concurrency_limit"]["limit"] == 1


def test_u30_a_deployed_run_outlives_an_absence_of_prefects_server_and_is_on_the_mlflow_server(
    installation: Installation,
) -> None:
    flow_run = installation.begin("quickstart", recipe="quickstart")
    (run,) = begun(installation)
    with installation.away("prefect-server"):
        # Tasks begin, the lease is not renewed in time, and the server that comes back does not know it.
        time.sleep(30)

    assert installation.end_of(flow_run, 900) == "Completed"

    assert committed_steps(run) == [0, 1, 2]
    mlflow_id = json.loads((run.root / "mlflow.json").read_text())["run_id"]
    client = mlflow.MlflowClient(installation.addresses()["MLflow"])
    assert client.get_run(mlflow_id).info.status == "FINISHED"
    assert [point.step for point in client.get_metric_history(mlflow_id, "reward/mean")] == [1, 2]

    limits = installation.ask("v2/concurrency_limits/filter", {})
    assert {limit["name"].split(":")[0]: limit["active_slots"] for limit in limits} == {"deployment": 0}
    of_the_run = {"flow_runs": {"id": {"any_": [flow_run]}}}
    tags = {found["name"]: set(found["tags"]) for found in installation.ask("task_runs/filter", of_the_run)}
    assert tags["rollout step 2 shard 0"] == {"rl-post", "rollout"}
    assert tags["update step 2"] == {"rl-post", "update"}
    lines = [log["message"] for log in installation.ask("logs/filter", {"logs": {"flow_run_id": {"any_": [flow_run]}}})]
    assert [step for step in range(3) if any(line.startswith(f"step {step} of 2") for line in lines)] == [0, 1, 2]
    assert any("Concurrency lease renewal failed" in line for line in lines)  # So the absence fell into a renewal.


def test_the_password_in_an_mlflow_servers_address_is_neither_shown_nor_stored(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    address = installation.addresses()["MLflow"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.replace("//", "//user:hunter2@"))
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)  # What the tracker sets ends with the test.
    run = create_run(tmp_path, load_recipe("quickstart"))
    commit(run, 0, {"reward/mean": 0.5})

    tracker = Tracker(run)
    tracker.finish("FINISHED")

    shown = "".join(capfd.readouterr()) + tracker.location
    assert f"{address}/#/experiments" in shown  # So MLflow says where the run is.
    assert "hunter2" not in shown
    mlflow_id = json.loads((run.root / "mlflow.json").read_text())["run_id"]
    assert mlflow.MlflowClient(address).get_run(mlflow_id).data.metrics["reward/mean"] == 0.5
    left = [path for folder in (tmp_path, installation.home) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in left if b"hunter2" in path.read_bytes()]


def test_a_run_that_was_cut_off_with_its_services_gives_its_place_in_the_queue_back(installation: Installation) -> None:
    api = f"{installation.addresses()['Prefect']}/api"
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("rl-post/r1")
        run = client.create_flow_run_from_deployment(deployment.id)
        client.set_flow_run_state(run.id, Pending())
        client.set_flow_run_state(run.id, Running())
        limit = f"{api}/v2/concurrency_limits/deployment:{deployment.id}"
        assert httpx.get(limit).json()["active_slots"] == 1

        assert close_orphans(api, POOL) == [run.name]

        assert client.read_flow_run(run.id).state_name == "Crashed"
        assert httpx.get(limit).json()["active_slots"] == 0
