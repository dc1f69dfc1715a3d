"""What is said of nodes that differ from the driver, or that don't reach what a run needs."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from configs.schema import Recipe, Tracking
from tasks.processes import preflight
from tasks.processes.preflight import Report, problems, report, versions

DRIVER = {"python": "3.12.3", "torch": "2.14.1", "code of rl-post": "0123456789ab"}

CONNECT = 10.0  # Seconds.


def test_nodes_that_are_like_the_driver_and_reach_everything_are_fine():
    assert problems(DRIVER, {"a": Report(DRIVER, {}), "b": Report(DRIVER, {})}) == []


def test_a_difference_is_named_with_the_node_and_both_versions():
    other = Report(DRIVER | {"torch": "2.11.0+rocm10.0.0"}, {})

    assert problems(DRIVER, {"a": Report(DRIVER, {}), "b": other}) == [
        "node b has torch 2.11.0+rocm10.0.0, the driver 2.14.1"
    ]


def test_everything_that_is_wrong_is_said_at_once():
    answers = {
        "a": Report({"python": "3.11.9"}, {"MLflow at mlflow:5000": "Connection refused"}),
        "b": "gave no answer in 180 s",
    }

    assert problems(DRIVER, answers) == [
        "node a has python 3.11.9, the driver 3.12.3",
        "node a has torch not reported, the driver 2.14.1",
        "node a has code of rl-post not reported, the driver 0123456789ab",
        "node a does not reach MLflow at mlflow:5000: Connection refused",
        "node b gave no answer in 180 s",
    ]


def test_what_is_compared_are_the_versions_that_processes_share():
    assert versions().keys() == {"python", "torch", "ray", "sglang", "prefect", "code of rl-post"}


@pytest.fixture
def service() -> Iterator[str]:
    """A server that is healthy, except under /broken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(500 if self.path.startswith("/broken") else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://user:secret@127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_node_writes_its_name_where_the_driver_reads_it(tmp_path: Path, service: str):
    assert report(tmp_path / "node-1", {"MLflow": f"{service}/health"}, CONNECT).out_of_reach == {}
    assert (tmp_path / "node-1").read_text() == "node-1"


def test_a_directory_that_a_node_does_not_mount_is_out_of_its_reach(tmp_path: Path):
    (what, why), *others = report(tmp_path / "home" / "meeting" / "node-1", {}, CONNECT).out_of_reach.items()

    assert what == f"the run directory {tmp_path / 'home'}"
    assert why.startswith("No such file or directory; set RL_POST_HOME")
    assert others == []


def test_a_service_that_fails_or_is_not_there_is_named_without_the_password_in_its_address(
    tmp_path: Path, service: str
):
    services = {"MLflow": f"{service}/broken/health", "the Prefect API": "http://user:secret@127.0.0.1:9/api/health"}

    found = report(tmp_path / "node-1", services, CONNECT).out_of_reach

    assert [what.split(" at ")[0] for what in found] == ["MLflow", "the Prefect API"]
    assert "it answers with status 500" in found.values()
    assert "secret" not in str(found)


@pytest.mark.parametrize("content", [None, "another"])
def test_what_a_node_wrote_and_the_driver_does_not_see_is_another_directory(tmp_path: Path, content: str | None):
    if content:
        (tmp_path / "node-1").write_text(content)

    seen = preflight._read_back(tmp_path / "node-1", Report(DRIVER, {}))

    assert isinstance(seen, Report)
    assert [*seen.out_of_reach] == [f"the run directory {tmp_path.parent}"]


def test_an_mlflow_database_file_is_the_drivers_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000/")
    beside = Recipe(name="r", tracking=Tracking(uri="sqlite:///runs/mlflow.db"))

    assert "MLflow" not in preflight._services(beside)
    assert preflight._services(Recipe(name="r"))["MLflow"] == "http://mlflow:5000/health"
