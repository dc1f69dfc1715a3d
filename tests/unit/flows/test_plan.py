"""Launch plans for clusters that are not there: three that were looked at, and what holds for all.

    python -m tests.unit.flows.test_plan

writes the three in plans/ again; look at what changed before you commit it.
"""

import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from configs.errors import UserError
from configs.loader import RECIPES, load_recipe
from configs.schema import Recipe
from flows.plan import LaunchPlan, describe_bundles, launch_plan, show
from tasks.cluster.machines import GPUS, parse_cluster
from tests.families import FAMILIES, build

SNAPSHOTS = Path(__file__).parent / "plans"
LOOKED_AT = {
    # file: recipe, overrides, cluster
    "laptop": ("r1", [], "cpu"),
    "one-gpu": ("r1", [], "1x1:H100"),
    "two-nodes": ("gsm8k", ["engine.count=8", "learner.ranks=8", "model.path=Qwen/Qwen3-8B"], "2x8:MI300X"),
}
SHIPPED = sorted(path.stem for path in RECIPES.glob("*.yaml"))
CLUSTERS = ["cpu", *(f"{size}:{kind}" for kind in GPUS for size in ("1x1", "1x2", "1x8", "2x8", "64x8"))]


def recipe(model: str, engine_gpus: int, engines: int, ranks: int, placement: str = "split") -> Recipe:
    return Recipe.model_validate(
        {
            "name": "planned",
            "model": {"path": model, "dtype": "bfloat16", "context_length": 1024 if model == "tiny" else 4096},
            "rollout": {"max_response_tokens": 512 if model == "tiny" else 2048},
            "engine": {"count": engines, "gpus": engine_gpus, "placement": placement},
            "learner": {"ranks": ranks, "gpus": 1 if engine_gpus else 0},
        }
    )


def plan_of(model: str, cluster: str, engine_gpus: int = 1) -> LaunchPlan:
    """Several nodes: half of them for engines, half for the learner. One node: all of it for both."""
    machines = parse_cluster(cluster)
    several = machines.count > 1
    gpus = machines.gpus // (2 if several else 1)
    placement = "split" if several else "colocated"
    return launch_plan(recipe(model, engine_gpus, gpus // engine_gpus, gpus, placement), machines)


def printed(name: str) -> str:
    """What `rl-post plan` prints below the recipe."""
    file, overrides, cluster = LOOKED_AT[name]
    machines = parse_cluster(cluster)
    resolved = load_recipe(file, overrides, machines.gpus)
    console = Console(file=io.StringIO(), width=160)
    show(resolved, launch_plan(resolved, machines), console)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("what would start"))
    return "\n".join(lines[first:]) + "\n"


@pytest.mark.parametrize("name", LOOKED_AT)
def test_the_plan_is_the_one_that_was_looked_at(name: str):
    assert printed(name) == (SNAPSHOTS / f"{name}.txt").read_text()


def test_u06_the_plan_says_where_responses_end_by_themselves():
    def shown(*overrides: str) -> str:
        machines = parse_cluster("cpu")
        resolved = load_recipe("r1", overrides, machines.gpus)
        console = Console(file=io.StringIO(), width=160)
        show(resolved, launch_plan(resolved, machines), console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    assert r"a response also ends at: '\nQuestion:', '\nQ:'" in shown("data.chat_template=plain")
    assert "also ends at" not in shown()


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recipe_fits_a_cluster_or_the_plan_says_what_is_missing(name: str, cluster: str):
    machines = parse_cluster(cluster)
    resolved = load_recipe(name, gpus=machines.gpus)
    try:
        plan = launch_plan(resolved, machines)
    except UserError as error:
        assert "a node has" in str(error) or "there is no place left" in str(error)
        assert resolved.engine.gpus * resolved.engine.count + resolved.learner.ranks > machines.gpus
        return
    too_much = [
        demand
        for demand in (plan.capacity.engine, plan.capacity.learner, *plan.capacity.shared.values())
        if demand and machines.gpu and max(demand.total, demand.loading) > machines.gpu.memory
    ]
    assert len(plan.capacity.problems) >= len(too_much)
    assert all(" has " in problem and "GiB" in problem for problem in plan.capacity.problems)
    taken = Counter((process.place.node, gpu) for process in plan.processes for gpu in process.place.devices)
    assert all(node < machines.count and gpu < machines.node.gpus for node, gpu in taken)
    assert set(taken.values()) <= ({2} if resolved.engine.colocated else {1})


@pytest.mark.parametrize("kind", GPUS)
def test_every_shipped_recipe_without_a_gpu_fits_any_machine(kind: str):
    for name in SHIPPED:
        resolved = load_recipe(name)
        if not resolved.engine.gpus:
            assert launch_plan(resolved, parse_cluster(f"1x8:{kind}")).capacity.problems == []
            assert launch_plan(resolved, parse_cluster("cpu")).capacity.problems == []


def test_a_laptop_is_planned_without_devices():
    plan = launch_plan(recipe("tiny", 0, 1, 1), parse_cluster("cpu"))

    assert [process.place.devices for process in plan.processes] == [(), ()]
    assert "--device=cpu" in plan.processes[0].command
    assert plan.capacity.problems == []


def test_no_gpu_is_given_away_twice():
    plan = plan_of("Qwen/Qwen3-8B", "2x8:H100")

    taken = [(process.place.node, device) for process in plan.processes for device in process.place.devices]
    assert sorted(taken) == [(node, device) for node in range(2) for device in range(8)]


def test_engines_that_leave_gpus_of_a_node_over_leave_them_to_the_learner():
    plan = launch_plan(recipe("Qwen/Qwen3-8B", 3, 2, 2), parse_cluster("1x8:H100"))

    assert [process.place.devices for process in plan.processes] == [(0, 1, 2), (3, 4, 5), (6,), (7,)]


def test_a_model_that_the_learner_cannot_hold_is_said_so_with_the_numbers():
    problems = plan_of("deepseek-ai/DeepSeek-R1", "2x8:H100", 8).capacity.problems

    assert any(problem.startswith("learner-0 needs") and "a H100 has 79.6" in problem for problem in problems)


def test_a_model_with_quantised_weights_does_not_fit_any_cluster():
    problems = plan_of("deepseek-ai/DeepSeek-R1", "64x8:B200", 8).capacity.problems

    assert any("deepseek-ai/DeepSeek-R1 are quantised (fp8) and can't be trained" in problem for problem in problems)


def test_an_engine_and_a_rank_take_turns_on_one_gpu():
    plan = launch_plan(load_recipe("r1", gpus=1), parse_cluster("1x1:H100"))

    assert [process.place.devices for process in plan.processes] == [(0,), (0,)]
    assert "--enable-memory-saver" in plan.processes[0].command
    assert plan.capacity.problems == []


def test_what_does_not_fit_beside_a_resting_learner_is_said_so():
    plan = launch_plan(load_recipe("r1", ["engine.memory_fraction=0.8"], gpus=1), parse_cluster("1x1:H100"))

    (problem,) = plan.capacity.problems
    assert problem.startswith("engine and rank together need") and "during the rollout" in problem
    assert "Lower engine.memory_fraction" in problem


def test_a_plan_says_what_is_held_together_on_each_node():
    assert describe_bundles(plan_of("Qwen/Qwen3-8B", "4x8:H100").capacity.layout.bundles) == (
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
    assert plan.capacity.problems == []


def test_u19_a_context_longer_than_the_model_has_does_not_fit(tmp_path: Path):
    build("llama3", tmp_path / "local", weights=False)
    for path, longest in {"tiny": 1024, "smollm2": 8192, str(tmp_path / "local"): 128, "Qwen/Qwen3-8B": 40_960}.items():
        for length, fits in ((longest, True), (longest + 1, False)):
            changes = {"model.path": path, "model.context_length": length, "optimizer.micro_batch_tokens": length}
            wanted = load_recipe("smollm2", [f"{key}={value}" for key, value in changes.items()])

            problems = launch_plan(wanted, parse_cluster("cpu")).capacity.problems

            said = f"model.context_length is {length}, but model.path {path} has {longest} positions"
            assert any(problem.startswith(said) for problem in problems) is not fits


@pytest.mark.parametrize("family", FAMILIES)
def test_u11_the_plan_names_the_tokens_that_end_a_response(family: str, tmp_path: Path):
    folder = build(family, tmp_path / "model", weights=False)
    console = Console(file=io.StringIO(), width=120)

    show(recipe("tiny", 0, 1, 1), launch_plan(recipe("tiny", 0, 1, 1), parse_cluster("cpu")), console, folder)

    assert isinstance(console.file, io.StringIO)
    assert f"a response ends at: {FAMILIES[family].eos} (" in console.file.getvalue()


def test_a_plan_of_64_nodes_is_shown_on_a_page():
    console = Console(file=io.StringIO(), width=120)

    show(recipe("Qwen/Qwen3-8B", 1, 256, 256), plan_of("Qwen/Qwen3-8B", "64x8:MI300X"), console)

    printed = console.file.getvalue() if isinstance(console.file, io.StringIO) else ""
    assert "learner 0 to 7" in printed
    assert "HIP_VISIBLE_DEVICES=0" in printed


if __name__ == "__main__":
    for name in LOOKED_AT:
        (SNAPSHOTS / f"{name}.txt").write_text(printed(name))
