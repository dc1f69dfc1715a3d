"""Every deployment of prefect.yaml would run: its flow takes its parameters, its recipe loads, its pool is served."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel

from configs.loader import load_recipe
from flows.plan import launch_plan
from flows.rl_post import rl_post
from flows.services import POOL, _local_deployments
from tasks.cluster.machines import parse_cluster

ROOT = Path(__file__).parents[3]
DESCRIBED: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
each_deployment = pytest.mark.parametrize("deployment", DESCRIBED, ids=lambda deployment: deployment["name"])
CLUSTERS = {"r1-nvidia": ("nvidia", "1x8:H100"), "r1-amd": ("amd", "1x8:MI300X")}


def test_prefect_accepts_the_file():
    model = PrefectYamlModel.model_validate(yaml.safe_load((ROOT / "prefect.yaml").read_text()))

    assert [deployment.name for deployment in model.deployments] == ["r1", "quickstart", "smollm2", *CLUSTERS]


@each_deployment
def test_its_flow_takes_its_parameters_and_its_recipe_loads(deployment: dict[str, Any]):
    parameters = deployment["parameters"]

    assert deployment["entrypoint"] == "flows.rl_post.rl_post"
    assert rl_post.validate_parameters(parameters) == parameters
    load_recipe(parameters["recipe"], parameters["overrides"])


@each_deployment
def test_it_waits_for_its_turn_and_for_someone_to_switch_its_schedule_on(deployment: dict[str, Any]):
    assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}
    assert not any(schedule["active"] for schedule in deployment.get("schedules", []))
    assert deployment["tags"][0] == "rl-post"


def test_this_machine_is_given_those_of_its_own_pool():
    assert _local_deployments() == ["r1", "quickstart", "smollm2"]
    assert POOL == "rl-post-local"


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_clusters_deployment_joins_its_ray_and_has_no_secret(name: str):
    vendor, _ = CLUSTERS[name]
    (deployment,) = [deployment for deployment in DESCRIBED if deployment["name"] == name]

    assert deployment["tags"] == ["rl-post", "cluster", vendor]
    assert deployment["work_pool"] == {
        "name": f"rl-post-{vendor}",
        "job_variables": {"env": {"RAY_ADDRESS": "auto"}},
    }


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_clusters_deployment_fits_the_smallest_cluster_of_its_vendor(name: str):
    _, cluster = CLUSTERS[name]
    (deployment,) = [deployment for deployment in DESCRIBED if deployment["name"] == name]
    machines = parse_cluster(cluster)
    parameters = deployment["parameters"]
    recipe = load_recipe(parameters["recipe"], parameters["overrides"], machines.gpus)

    assert launch_plan(recipe, machines).capacity.problems == []
    assert recipe.engine.gpus and recipe.learner.gpus
    assert recipe.tracking.register_as == f"rl-post-{name}"


def test_every_pool_that_something_starts_a_worker_for_has_deployments():
    pools = {deployment["work_pool"]["name"] for deployment in DESCRIBED}
    files = [*(ROOT / "docker").iterdir(), ROOT / "docs/clusters.md"]
    started = {pool for file in files for pool in re.findall(r"--pool (rl-post-\w+)", file.read_text())}

    assert started
    assert started <= pools
