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
from configs.schema import Recipe
from flows.plan import GIB, LaunchPlan, launch_plan, show
from tasks.runtime.machines import parse_cluster

SNAPSHOTS = Path(__file__).parent / "plans"
MODELS = {
    # model: GPUs of an engine
    "Qwen/Qwen2.5-0.5B-Instruct": 1,
    "Qwen/Qwen3-8B": 1,
    "meta-llama/Llama-3.1-70B-Instruct": 8,
    "deepseek-ai/DeepSeek-R1": 8,
}
CLUSTERS = [f"{nodes}x8:{kind}" for kind in ("H100", "H200", "B200", "MI300X", "MI325X", "MI355X") for nodes in (2, 64)]


def recipe(model: str, engine_gpus: int, engines: int, ranks: int) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "planned",
            "model": {"path": model, "dtype": "bfloat16", "context_length": 4096},
            "rollout": {"max_response_tokens": 2048},
            "engine": {"count": engines, "gpus": engine_gpus},
            "learner": {"ranks": ranks, "gpus": 1 if engine_gpus else 0},
        }
    )


def plan_of(model: str, cluster: str) -> LaunchPlan:
    """Half of the nodes for engines, half for the learner."""
    machines = parse_cluster(cluster)
    half = machines.nodes * machines.gpus // 2
    return launch_plan(recipe(model, MODELS[model], half // MODELS[model], half), machines)


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
        "cached_tokens": plan.cached_tokens,
        "host_memory_gib": round(plan.host_memory / GIB, 1),
        "problems": plan.problems,
    }


def everything(cluster: str) -> str:
    plans = {model: summary(plan_of(model, cluster)) for model in MODELS}
    return json.dumps(plans, indent=1) + "\n"


@pytest.mark.parametrize("cluster", CLUSTERS)
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


def test_an_engine_larger_than_a_node_is_refused():
    with pytest.raises(UserError, match=r"engine.gpus is 16, but a node has 8"):
        launch_plan(recipe("Qwen/Qwen3-8B", 16, 1, 1), parse_cluster("4x8:H100"))


def test_too_few_gpus_are_refused_with_what_is_needed():
    with pytest.raises(
        UserError, match=r"no place left for learner-1: 1 engines of 8 GPUs and 2 learner ranks of 1 need"
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
    for name in CLUSTERS:
        (SNAPSHOTS / f"{name.replace(':', '-')}.json").write_text(everything(name))
