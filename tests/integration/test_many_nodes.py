"""The whole flow on a Ray cluster of three nodes: two engines, two ranks of the learner, rollouts beside updates."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
import ray
import ray._private.state
from ray.cluster_utils import Cluster

from tasks.processes.local_ray import prepare_local_ray
from tasks.records.samples import read_samples
from tasks.run.directory import Run
from tasks.run.ledger import committed_steps, open_run, read_commit
from tests.integration.processes import Marked
from trainer.files import sha256

pytestmark = pytest.mark.slow

RL_POST = Path(sys.executable).parent / "rl-post"
STEPS = 24
RECIPE = [
    "r1",
    f"steps={STEPS}",
    "engine.count=2",
    "engine.cpus=0.5",
    "engine.threads=1",
    "learner.ranks=2",
    "learner.cpus=0.5",
    "learner.threads=1",
    "pipeline.max_staleness=1",
    "rollout.prompts_per_step=16",
    f"evaluation.every={STEPS}",
    "tracking.register_as=null",
]
PATIENCE = 900.0  # Seconds that a run may take.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head and two nodes, any two of which could hold all."""
    prepare_local_ray(os.environ)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    for _ in range(2):
        made.add_node(num_cpus=2)
    yield made
    ray.shutdown()
    made.shutdown()


def start(home: Path, cluster: Cluster) -> subprocess.Popen[bytes]:
    environment = Marked(home).environment | {"RAY_ADDRESS": str(cluster.address)}
    with (home / "output.txt").open("ab") as output:
        return subprocess.Popen([RL_POST, "run", *RECIPE], cwd=home, env=environment, stdout=output, stderr=output)


def finished(home: Path, driver: subprocess.Popen[bytes], known: set[Path]) -> Run:
    assert driver.wait(PATIENCE) == 0, (home / "output.txt").read_text()[-3000:]
    (root,) = set((home / "runs").iterdir()) - known
    return open_run(home, root.name)


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """Hashes of the final weights, by test."""
    return {}


def test_rewards_rise_with_rollouts_one_update_behind(home: Path, cluster: Cluster, results: dict[str, str]) -> None:
    run = finished(home, start(home, cluster), set())

    assert committed_steps(run) == list(range(STEPS + 1))
    rewards = [read_commit(run, step)["metrics"]["reward/mean"] for step in range(1, STEPS + 1)]
    assert fmean(rewards[-6:]) > fmean(rewards[:6])
    for step in range(1, STEPS + 1):
        rows = read_samples(sorted(run.step_file(step, "").glob("scored-*.parquet")))
        assert {version for row in rows for version in row["weights_versions"]} == {max(0, step - 2)}
    results["undisturbed"] = sha256(run.weights(STEPS) / "model.safetensors")


def test_a_run_that_loses_a_node_ends_with_the_same_weights(
    home: Path, cluster: Cluster, results: dict[str, str]
) -> None:
    known = set((home / "runs").iterdir())
    driver = start(home, cluster)
    deadline = time.monotonic() + PATIENCE
    while not list(home.glob("runs/*/steps/000008/update.json"))[len(known) :]:
        assert driver.poll() is None, (home / "output.txt").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)

    ray.init(address=str(cluster.address), log_to_driver=False)
    used = {actor["Address"]["NodeID"] for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"}
    lost = next(node for node in cluster.worker_nodes if node.node_id in used)
    cluster.remove_node(lost, allow_graceful=False)

    run = finished(home, driver, known)
    assert committed_steps(run) == list(range(STEPS + 1))
    assert sha256(run.weights(STEPS) / "model.safetensors") == results["undisturbed"]
