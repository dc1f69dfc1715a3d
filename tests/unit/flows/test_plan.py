"""Launch plans for clusters that are not there, against snapshots in plans/.

    python tests/unit/flows/test_plan.py

writes the snapshots again; look at what changed before you commit it.
"""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from configs.errors import UserError
from configs.loader import load_recipe
from configs.schema import Pipeline, Recipe, WeightSync
from flows.plan import GIB, LaunchPlan, describe, describe_bundles, launch_plan, show
from tasks.cluster.machines import parse_cluster
from tasks.cluster.memory import kept_demand
from trainer.model.shape import model_shape

SNAPSHOTS = Path(__file__).parent / "plans"
MODELS = {
    # model: GPUs of an engine
    "Qwen/Qwen2.5-0.5B-Instruct": 1,
    "Qwen/Qwen3-8B": 1,
    "meta-llama/Llama-3.1-70B-Instruct": 8,
    "deepseek-ai/DeepSeek-R1": 8,
}
KINDS = ("H100", "H200", "B200", "MI300X", "MI325X", "MI355X")
SPLIT = [f"{nodes}x8:{kind}" for kind in KINDS for nodes in (2, 64)]
COLOCATED = [f"1x8:{kind}" for kind in KINDS]


def recipe(model: str, engine_gpus: int, engines: int, ranks: int, placement: str = "split") -> Recipe:
    return Recipe.model_validate(
        {
            "name": "planned",
            "model": {"path": model, "dtype": "bfloat16", "context_length": 4096},
            "rollout": {"max_response_tokens": 2048},
            "engine": {"count": engines, "gpus": engine_gpus, "placement": placement},
            "learner": {"ranks": ranks, "gpus": 1 if engine_gpus else 0},
        }
    )


def plan_of(model: str, cluster: str) -> LaunchPlan:
    """Several nodes: half of them for engines, half for the learner. One node: all of it for both."""
    machines = parse_cluster(cluster)
    several = machines.nodes > 1
    gpus = machines.nodes * machines.gpus // (2 if several else 1)
    placement = "split" if several else "colocated"
    return launch_plan(recipe(model, MODELS[model], gpus // MODELS[model], gpus, placement), machines)


def summary(plan: LaunchPlan) -> dict[str, Any]:
    """What a snapshot holds: the first and the last process of each kind in full, and the rest of the plan."""
    shown = {}
    for kind in ("engine", "learner"):
        members = [process for process in plan.processes if process.place.kind == kind]
        for process in (members[0], members[-1]):
            demand = (
                {name: round(size / GIB, 1) for name, size in process.demand.parts.items()} if process.demand else {}
            )
            shown[process.place.name] = asdict(process) | {"demand": demand}
    return {
        "processes": len(plan.processes),
        **shown,
        "bundles": describe_bundles(plan.bundles),
        "shared": {turn: describe(demand) for turn, demand in plan.shared.items()},
        "cached_tokens": plan.cached_tokens,
        "host_memory_gib": round(plan.host_memory / GIB, 1),
        "problems": plan.problems,
    }


def everything(cluster: str) -> str:
    plans = {model: summary(plan_of(model, cluster)) for model in MODELS}
    return json.dumps(plans, indent=1) + "\n"


@pytest.mark.parametrize("cluster", SPLIT + COLOCATED)
def test_the_plan_of_each_cluster_is_the_one_that_was_looked_at(cluster: str):
    assert everything(cluster) == (SNAPSHOTS / f"{cluster.replace(':', '-')}.json").read_text()


def test_a_laptop_is_planned_without_devices():
    plan = launch_plan(recipe("tiny", 0, 1, 1), parse_cluster("cpu"))

    assert [process.place.devices for process in plan.processes] == [(), ()]
    assert "--device=cpu" in plan.processes[0].command
    assert plan.problems == []


def test_no_gpu_is_given_away_twice():
    plan = plan_of("Qwen/Qwen3-8B", "2x8:H100")

    taken = [(process.place.node, device) for process in plan.processes for device in process.place.devices]
    assert sorted(taken) == [(node, device) for node in range(2) for device in range(8)]


def test_engines_that_leave_gpus_of_a_node_over_leave_them_to_the_learner():
    plan = launch_plan(recipe("Qwen/Qwen3-8B", 3, 2, 2), parse_cluster("1x8:H100"))

    assert [process.place.devices for process in plan.processes] == [(0, 1, 2), (3, 4, 5), (6,), (7,)]


def test_a_model_that_the_learner_cannot_hold_is_said_so_with_the_numbers():
    problems = plan_of("deepseek-ai/DeepSeek-R1", "2x8:H100").problems

    assert any(problem.startswith("learner-0 needs") and "a H100 has 79.6" in problem for problem in problems)


def test_a_model_with_quantised_weights_does_not_fit_any_cluster():
    problems = plan_of("deepseek-ai/DeepSeek-R1", "64x8:B200").problems

    assert any("deepseek-ai/DeepSeek-R1 are quantised (fp8) and can't be trained" in problem for problem in problems)


def test_an_engine_and_a_rank_take_turns_on_one_gpu():
    plan = launch_plan(load_recipe("r1", gpus=1), parse_cluster("1x1:H100"))

    assert [process.place.devices for process in plan.processes] == [(0,), (0,)]
    assert "--enable-memory-saver" in plan.processes[0].command
    assert plan.problems == []


def test_what_does_not_fit_beside_a_resting_learner_is_said_so():
    plan = launch_plan(load_recipe("r1", ["engine.memory_fraction=0.8"], gpus=1), parse_cluster("1x1:H100"))

    (problem,) = plan.problems
    assert problem.startswith("engine and rank together need") and "during the rollout" in problem
    assert "Lower engine.memory_fraction" in problem


def test_a_plan_says_what_is_held_together_on_each_node():
    assert describe_bundles(plan_of("Qwen/Qwen3-8B", "4x8:H100").bundles) == (
        "8 x (1 GPU) on each of nodes 0 to 1; 1 x (8 GPU) on each of nodes 2 to 3"
    )
    assert describe_bundles([]) == "nothing"


def test_engines_are_reached_by_their_nodes_address_where_there_are_several():
    assert "--host=127.0.0.1" in plan_of("Qwen/Qwen3-8B", "1x8:H100").processes[0].command
    assert "--host=NODE" in plan_of("Qwen/Qwen3-8B", "2x8:H100").processes[0].command


def test_a_cluster_of_other_gpus_than_the_recipes_is_refused():
    with pytest.raises(UserError, match="accelerator_type is H200, but the cluster has H100"):
        launch_plan(load_recipe("r1", ["accelerator_type=H200"], gpus=1), parse_cluster("1x1:H100"))


def test_an_engine_larger_than_a_node_is_refused():
    with pytest.raises(UserError, match=r"engine.gpus is 16, but a node has 8"):
        launch_plan(recipe("Qwen/Qwen3-8B", 16, 1, 1), parse_cluster("4x8:H100"))


def test_too_few_gpus_are_refused_with_what_is_needed():
    with pytest.raises(
        UserError, match=r"no place left for learner-1, which asks for 1 GPU .* need 10 GPU, the cluster has 9 GPU"
    ):
        launch_plan(recipe("Qwen/Qwen3-8B", 8, 1, 2), parse_cluster("1x9:H100"))


def test_what_asks_for_no_gpu_runs_on_the_cpu_of_a_machine_with_gpus():
    plan = launch_plan(recipe("tiny", 0, 1, 1), parse_cluster("1x8:H100"))

    assert "--device=cpu" in plan.processes[0].command
    assert "OMP_NUM_THREADS" in plan.processes[1].environment
    assert plan.problems == []


def test_a_plan_of_64_nodes_is_shown_on_a_page():
    console = Console(file=io.StringIO(), width=120)

    show(recipe("Qwen/Qwen3-8B", 1, 256, 256), plan_of("Qwen/Qwen3-8B", "64x8:MI300X"), console)

    printed = console.file.getvalue() if isinstance(console.file, io.StringIO) else ""
    assert "learner 0 to 7" in printed
    assert "HIP_VISIBLE_DEVICES=0" in printed


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for name in SPLIT + COLOCATED:
        (SNAPSHOTS / f"{name.replace(':', '-')}.json").write_text(everything(name))


def test_versions_that_ranks_keep_for_engines_count_for_all_ranks_of_the_first_ones_node():
    fresh = recipe("Qwen/Qwen3-8B", 1, 4, 12, "split")
    lagging = {"pipeline": Pipeline(max_staleness=2), "weight_sync": WeightSync(via="broadcast")}
    stale = fresh.model_copy(update=lagging)
    plans = [launch_plan(each, parse_cluster("2x8:H100")) for each in (fresh, stale)]

    first, *_ = ranks = [process.place.node for process in plans[1].processes if process.place.kind == "learner"]
    assert 1 < ranks.count(first) < 12
    kept = kept_demand(stale, model_shape("Qwen/Qwen3-8B"))
    assert plans[1].host_memory - plans[0].host_memory == ranks.count(first) * kept > 0
