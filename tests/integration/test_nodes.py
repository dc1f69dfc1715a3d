"""Several Ray nodes: the driver's code reaches their workers, and they are looked at before anything starts."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from prefect import flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from ray.cluster_utils import Cluster

from configs.errors import UserError
from configs.schema import Recipe, Tracking
from tasks.orchestrator.dispatch import stage, submit
from tasks.orchestrator.task_runner import ray_task_runner
from tasks.processes.local_ray import prepare_local_ray
from tasks.processes.preflight import check_nodes, versions
from tasks.run.directory import Run

ROOT = Path(__file__).parents[2]
SHIPPED = "working_dir_files"
"""Part of the path where Ray unpacks what it was given."""
RECIPE = Recipe(name="nodes", tracking=Tracking(uri="sqlite:///mlflow.db"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, and RAY_ADDRESS, by which a flow finds them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # Ray's workers import the tests' own tasks.
        patch.setenv("RL_POST_HOME", str(tmp_path_factory.mktemp("home")))
        prepare_local_ray(os.environ)
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        started.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", str(started.address))
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture(scope="module")
def driver(cluster: Cluster, prefect_server: None) -> Iterator[Cluster]:
    """The cluster, with this process as a flow's driver."""
    with ray_task_runner():
        yield cluster


@stage(name="where", run_name="where", limit=lambda limits: 120.0)
def where(run: Run) -> str:
    import tasks

    return tasks.__path__[0]


def test_prefects_tasks_run_the_drivers_code(driver: Cluster) -> None:
    @flow(task_runner=ray_task_runner(), name="nodes test")
    def ask() -> str:
        return submit(where, run=Run(Path("run"), RECIPE)).result()

    assert SHIPPED in ask()


def test_an_actor_with_an_environment_of_its_own_and_what_it_starts_run_the_drivers_code(
    driver: Cluster, tmp_path: Path
) -> None:
    class Actor:
        def where(self, log: Path) -> list[str]:
            import configs
            from tasks.processes import guard

            with log.open("wb") as output:
                print_it = [
                    sys.executable,
                    "-c",
                    "import tasks, trainer; print(tasks.__path__[0], trainer.__path__[0])",
                ]
                guard.start(print_it, {}, output, grace=2.0).wait(timeout=60)
            return [os.environ["OWN"], configs.__path__[0], *log.read_text().split()]

    actor: Any = ray.remote(Actor).options(num_cpus=0, runtime_env={"env_vars": {"OWN": "yes"}}).remote()

    own, *folders = ray.get(actor.where.remote(tmp_path / "log"), timeout=120)

    assert own == "yes"
    assert len(folders) == 3
    assert all(SHIPPED in folder for folder in folders)


def test_nodes_that_are_alike_and_reach_everything_pass_and_nothing_is_left(driver: Cluster) -> None:
    check_nodes(RECIPE)

    assert list(Path(os.environ["RL_POST_HOME"]).iterdir()) == []


def test_a_service_that_the_nodes_do_not_reach_is_named_for_each_of_them(driver: Cluster) -> None:
    away = Recipe(name="nodes", tracking=Tracking(uri="http://127.0.0.1:9"))

    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:10/api"}),
        pytest.raises(UserError) as raised,
    ):
        check_nodes(away)

    assert str(raised.value).count("does not reach MLflow at 127.0.0.1:9: ") == 2
    assert str(raised.value).count("does not reach the Prefect API at 127.0.0.1:10: ") == 2


def test_a_node_with_another_version_is_named_with_the_difference(driver: Cluster, tmp_path: Path) -> None:
    metadata = tmp_path / "torch-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.1\n")
    odd = driver.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})

    with pytest.raises(
        UserError, match=rf"{odd.node_id[:8]}\) has torch 0\.0\.1, the driver {versions()['torch']}"
    ) as raised:
        check_nodes(RECIPE)

    assert str(raised.value).count("has torch") == 1
