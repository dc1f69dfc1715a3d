"""Placement on a real Ray cluster of several nodes, whose GPUs Ray believes in: no process here uses one."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.exceptions import RayError
from ray.util.placement_group import placement_group_table
from safetensors.torch import load_file
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from configs.errors import UserError
from configs.schema import Recipe
from tasks.cluster.placement import Bundle, Layout, place
from tasks.engine.task import engine_actors
from tasks.processes.actors import ActorSpec, actors, ask, find_actor
from tasks.processes.learner_group import learner_ranks, take_turn
from tasks.processes.local_ray import prepare_local_ray
from tasks.processes.nodes import check_fits, nodes_of_type
from tasks.processes.reservation import held, reserved
from tasks.run.directory import Run
from tasks.update.learner_rank import LearnerRank
from tasks.update.task import learner_actors
from tests.integration.stand_in import StandIn
from tests.scored import scored
from trainer.files import write_json
from trainer.model import tiny_policy

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head and three nodes of eight GPUs."""
    os.environ["PYTHONPATH"] = str(ROOT)  # Ray's workers import this file
    prepare_local_ray(os.environ)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(3):
        made.add_node(num_cpus=4, num_gpus=8)
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()


def run_of(tmp_path: Path, engine: dict[str, Any], learner: dict[str, Any]) -> Run:
    recipe = {"name": "placed", "engine": engine, "learner": learner}
    return Run(tmp_path / "runs" / f"run-{time.monotonic_ns()}", Recipe.model_validate(recipe))


def stand_ins(run: Run) -> dict[str, ActorSpec]:
    described = engine_actors(run) | learner_actors(run)
    return {name: (StandIn, {}, options) for name, (_, _, options) in described.items()}


def found(run: Run, layout: Layout) -> dict[str, tuple[str, str, int]]:
    names = [placed.name for placed in layout.placed]
    return dict(zip(names, ask([find_actor(run.id, name) for name in names], "place", timeout=PATIENCE), strict=True))


def devices_of(places: Mapping[str, tuple[str, str, int]]) -> dict[tuple[str, str], list[str]]:
    """By kind and node: all GPUs that the actors see, sorted."""
    seen: dict[tuple[str, str], list[str]] = {}
    for name, (node, devices, _) in places.items():
        seen.setdefault((name.split("-")[0], node), []).extend(devices.split(","))
    return {key: sorted(devices) for key, devices in seen.items()}


def test_actors_land_where_the_plan_says_and_come_back_together_when_their_node_is_lost(
    cluster: Cluster, tmp_path: Path
):
    run = run_of(tmp_path, {"gpus": 4}, {"ranks": 6, "gpus": 1})
    layout = place(run.recipe, nodes_of_type())
    planned = {placed.name: placed.node for placed in layout.placed}
    with reserved(run.recipe) as seats, actors(run, stand_ins(run), seats):
        places = found(run, layout)
        nodes = {planned[name]: node for name, (node, _, _) in places.items()}
        assert {name: nodes[planned[name]] for name in planned} == {name: node for name, (node, _, _) in places.items()}
        assert len(set(nodes.values())) == len(nodes) == 2
        seen = devices_of(places)
        assert [len(seen[key]) for key in (("engine", nodes[0]), ("learner", nodes[0]))] == [4, 4]
        assert sorted(seen["engine", nodes[0]] + seen["learner", nodes[0]]) == [str(gpu) for gpu in range(8)]
        assert seen["learner", nodes[1]] == ["0", "1"]

        lost = next(node for node in cluster.worker_nodes if node.node_id == nodes[0])
        cluster.remove_node(lost, allow_graceful=False)
        after = wait_until_moved(run, layout, away_from=nodes[0])

        assert after["learner-4"] == places["learner-4"]  # the others were left alone
        assert len({after[f"learner-{rank}"][0] for rank in range(4)}) == 1
        moved = {name: place for name, place in after.items() if planned[name] == 0}
        assert sorted(len(devices) for devices in devices_of(moved).values()) == [4, 4]
        assert all(len(set(devices)) == 4 for devices in devices_of(moved).values())
    cluster.add_node(num_cpus=4, num_gpus=8)


def wait_until_moved(run: Run, layout: Layout, away_from: str) -> dict[str, tuple[str, str, int]]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            places = found(run, layout)
        except RayError:
            time.sleep(0.5)
            continue
        if away_from not in {node for node, _, _ in places.values()}:
            return places
    raise AssertionError("the actors did not come back")


def addresses() -> set[str]:
    """Of the nodes, as Ray knows them."""
    return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def wait_for(what: Callable[[], bool]) -> None:
    """Ray takes back asynchronously what is no longer held."""
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "did not happen within 20 s"
        time.sleep(0.2)


def test_colocated_ranks_see_one_gpu_each_of_the_engine_beside_them(cluster: Cluster, tmp_path: Path):
    run = run_of(tmp_path, {"count": 2, "gpus": 2, "placement": "colocated"}, {"ranks": 4, "gpus": 1})
    layout = place(run.recipe, nodes_of_type())
    with reserved(run.recipe) as seats, actors(run, stand_ins(run), seats):
        ranks = [find_actor(run.id, f"learner-{rank}") for rank in range(4)]
        take_turn(run, ranks, "nvidia")

        places = found(run, layout)
        for engine in (0, 1):
            node, devices, _ = places[f"engine-{engine}"]
            assert len(set(devices.split(","))) == 2
            beside = [places[f"learner-{rank}"] for rank in (2 * engine, 2 * engine + 1)]
            assert [(own, device) for own, device, _ in beside] == [(node, device) for device in devices.split(",")]
        wait_for(lambda: ray.available_resources()["GPU"] == 20)  # the ranks hold none of their own


def test_on_several_nodes_processes_are_reached_at_the_address_that_ray_knows_their_node_by(
    cluster: Cluster, tmp_path: Path
):
    run = run_of(tmp_path, {"count": 3, "gpus": 8}, {})
    with reserved(run.recipe) as seats, actors(run, stand_ins(run), seats):
        engines = [find_actor(run.id, f"engine-{index}") for index in range(3)]
        assert set(ask(engines, "address", timeout=PATIENCE)) == addresses()


@retry(retry=retry_if_exception_type(RayError), wait=wait_fixed(2.0), stop=stop_after_attempt(5), reraise=True)
def met(run: Run) -> list[Any]:
    """Return the ranks in one group. One that was killed may answer once more before it is gone: a task is retried."""
    return learner_ranks(run)


def test_ranks_on_two_nodes_update_as_one_does_and_meet_again_when_one_is_lost(cluster: Cluster, tmp_path: Path):
    policy = tmp_path / "policy"
    tiny_policy.build(policy)
    runs = {count: run_of(tmp_path, {}, {"ranks": count, "cpus": 4, "threads": 1}) for count in (1, 2)}
    for run in runs.values():
        for step in (1, 2):
            write_json(run.step_file(step, "batch.json"), {"scored": [scored(run, step).name]})

    alone = LearnerRank(runs[1], 0)
    for step in (1, 2):
        alone.update(step, str(policy), [str(runs[1].step_file(step, "scored-00.parquet"))])

    run = runs[2]
    with reserved(run.recipe) as seats, actors(run, learner_actors(run), seats):
        for step in (1, 2):
            both = met(run)
            (group,) = set(ask(both, "group", timeout=PATIENCE))
            assert group.split(":")[0] in addresses()
            ask(both, "update", step, str(policy), [str(run.step_file(step, "scored-00.parquet"))], timeout=PATIENCE)
            if step == 1:
                ray.kill(both[1], no_restart=False)

    one, two = (load_file(run.weights(2) / "model.safetensors") for run in runs.values())
    assert max(float((two[name] - one[name]).norm() / one[name].norm()) for name in one) < 1e-5


def test_what_the_cluster_never_has_is_refused_at_once(cluster: Cluster, tmp_path: Path):
    with pytest.raises(UserError, match=r"no place left for learner-0, which asks for 400 CPU .* has 13 CPU"):
        check_fits(run_of(tmp_path, {"cpus": 1}, {"cpus": 400}).recipe)


def test_what_no_node_has_is_refused_after_a_bounded_wait_and_nothing_is_held(cluster: Cluster):
    refused = pytest.raises(
        UserError, match=r"could not place 1 bundles within 2 s; the largest takes 0 CPU and 10 GPU of one node"
    )
    with refused, held([Bundle(0, 0, 10)], timeout=2):
        pass

    wait_for(lambda: {group["state"] for group in placement_group_table().values()} == {"REMOVED"})
    wait_for(lambda: ray.available_resources()["GPU"] == 24)


def test_what_another_run_holds_is_refused_after_a_bounded_wait(cluster: Cluster):
    refused = pytest.raises(UserError, match=r"need 0 CPU .* and 16 GPU \(free: 8\)")
    with held([Bundle(0, 0, 8)] * 2, timeout=60), refused, held([Bundle(0, 0, 8)] * 2, timeout=2):
        pass


def test_actors_go_to_the_chosen_type_of_gpus_and_to_no_other(cluster: Cluster, tmp_path: Path):
    typed = cluster.add_node(num_cpus=1, num_gpus=2, resources={"accelerator_type:H100": 1})
    try:
        run = run_of(tmp_path, {"gpus": 1}, {"gpus": 1})
        chosen = replace(run, recipe=run.recipe.model_copy(update={"accelerator_type": "H100"}))
        layout = place(chosen.recipe, nodes_of_type("H100"))
        with reserved(chosen.recipe) as seats, actors(run, stand_ins(chosen), seats):
            assert {node for node, _, _ in found(run, layout).values()} == {typed.node_id}
        with pytest.raises(UserError, match=r"need 3 GPU, the cluster has .* 2 GPU on"):
            place(run_of(tmp_path, {"gpus": 1}, {"gpus": 1, "ranks": 2}).recipe, nodes_of_type("H100"))
    finally:
        cluster.remove_node(typed)


def test_what_asks_for_nothing_runs_without_a_reservation(cluster: Cluster, tmp_path: Path):
    run = run_of(tmp_path, {}, {})
    with reserved(run.recipe) as seats, actors(run, stand_ins(run), seats):
        assert seats == {}
        assert len(found(run, place(run.recipe, nodes_of_type()))) == 2
