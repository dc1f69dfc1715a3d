"""What a recipe would start on a cluster, which need not be there: processes, devices, commands, memory."""

import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from configs.loader import dump_yaml
from configs.schema import Recipe
from tasks.cluster.devices import TYPE, device_environment, gpu_type
from tasks.cluster.machines import GPUS, Cluster
from tasks.cluster.memory import (
    Demand,
    cached_tokens,
    engine_demand,
    kept_demand,
    learner_demand,
    publication_demand,
    shared_demand,
)
from tasks.cluster.placement import Bundle, Placed, place, rooms_of
from tasks.processes.actors import needed
from tasks.processes.network import LOOPBACK
from tasks.server.launch import launch_spec
from tasks.update.environment import learner_environment
from trainer.model.quantisation import untrainable
from trainer.model.shape import ModelShape, model_shape

GIB = 2**30
USUAL_HOST_MEMORY = 2048 * GIB
"""What nodes of eight GPUs are commonly sold with."""
FIRST_PORT = 30000
WEIGHTS = Path("WEIGHTS")
"""Stands for the folder of a weights version in commands."""
ADDRESS = "NODE"
"""Stands for a node's address where there are several."""


@dataclass(frozen=True)
class Process:
    """A planned process; `command` is empty for one that Ray starts, `demand` None where it has no GPU."""

    place: Placed
    environment: dict[str, str]
    command: list[str]
    demand: Demand | None


@dataclass(frozen=True)
class LaunchPlan:
    """A recipe on a cluster. `problems` says what can't work; with none it fits, as far as estimates can tell.

    `bundles` is what Ray is asked to hold together on a node. `shared` is what engine and learner take of a GPU that
    they share, by whose turn it is; empty where they don't.
    """

    cluster: Cluster
    processes: list[Process]
    bundles: list[Bundle]
    shared: dict[str, Demand]
    cached_tokens: int | None
    host_memory: int
    problems: list[str]


def launch_plan(recipe: Recipe, cluster: Cluster) -> LaunchPlan:
    """Derive the plan; a pure function of recipe and cluster.

    Raises:
        UserError: the cluster has not enough GPUs, or others than the recipe's, or the model's size is not known.
    """
    if cluster.kind:
        gpu_type(recipe.accelerator_type, {f"{TYPE}{GPUS[cluster.kind].ray_type}": cluster.nodes})
    shape = model_shape(recipe.model.path)
    gpu_memory = GPUS[cluster.kind].memory if cluster.kind else None
    layout = place(recipe, rooms_of(cluster))
    processes = [_process(recipe, cluster, shape, placed) for placed in layout.placed]
    shared = shared_demand(recipe, shape, gpu_memory) if gpu_memory and recipe.engine.colocated else {}
    nodes = [placed.node for placed in layout.placed if placed.kind == "learner"]
    host_memory = publication_demand(shape) + nodes.count(nodes[0]) * kept_demand(recipe, shape)
    return LaunchPlan(
        cluster=cluster,
        processes=processes,
        bundles=layout.bundles,
        shared=shared,
        cached_tokens=cached_tokens(recipe, shape, gpu_memory) if gpu_memory and recipe.engine.gpus else None,
        host_memory=host_memory,
        problems=[
            *([untrainable(recipe.model.path, shape.quantisation)] if shape.quantisation else []),
            *_problems(processes, shared, cluster, gpu_memory, host_memory),
        ],
    )


def show(recipe: Recipe, plan: LaunchPlan, console: Console) -> None:
    """Print the resolved recipe and the plan."""
    console.print(dump_yaml(recipe), markup=False, highlight=False)
    gpu = GPUS[plan.cluster.kind] if plan.cluster.kind else None
    title = "what would start" + (f", on nodes of Ray's accelerator_type:{gpu.ray_type}" if gpu else "")
    table = Table("processes", "node", "GPUs", "memory of each GPU", title=title, title_justify="left")
    for (kind, node), members in groupby(plan.processes, key=lambda process: (process.place.kind, process.place.node)):
        first, *_, last = [*members] * 2
        names = f"{kind} {first.place.index}" + (f" to {last.place.index}" if first != last else "")
        devices = [*first.place.devices, *last.place.devices]
        span = f"{devices[0]} to {devices[-1]}" if len(set(devices)) > 1 else ", ".join(map(str, devices[:1]))
        table.add_row(names, str(node), span or "none", describe(first.demand))
    console.print(table)
    for kind in ("engine", "learner"):
        first = next(process for process in plan.processes if process.place.kind == kind)
        console.print(f"{first.place.name}, and the others alike:")
        words = [f"{name}={value}" for name, value in first.environment.items()] + first.command
        console.print(f"  {shlex.join(words) or 'a Ray actor'}", soft_wrap=True, markup=False, highlight=False)
    for turn, demand in plan.shared.items():
        console.print(f"each GPU during the {turn}, shared by an engine and a rank: {describe(demand)}")
    console.print(f"placement {recipe.engine.placement}, held by Ray: {describe_bundles(plan.bundles)}", soft_wrap=True)
    needs = needed(recipe)
    console.print(
        f"needs {needs['CPU']:g} CPU, {needs['GPU']:g} GPU, and about {needs['memory'] / GIB:.0f} GiB of host memory"
    )
    kept = f", with the last {recipe.versions_kept} versions in memory," if recipe.versions_kept else ""
    console.print(
        f"writing weights{kept} takes {plan.host_memory / GIB:.1f} GiB of host memory on the node of learner-0"
    )
    if plan.cached_tokens is not None:
        console.print(f"the KV cache of an engine holds {plan.cached_tokens} tokens")
    for problem in plan.problems:
        console.print(f"[red]does not fit:[/] {problem}", soft_wrap=True)


def describe(demand: Demand | None) -> str:
    """Show a demand in GiB, its largest parts first."""
    if demand is None:
        return ""
    parts = sorted(demand.parts.items(), key=lambda part: -part[1])
    shown = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size >= 0.05 * GIB)
    return f"{demand.total / GIB:.1f} GiB: {shown}"


def describe_bundles(bundles: list[Bundle]) -> str:
    """Show what is held on each node, neighbours alike together."""
    of_nodes = groupby(sorted(bundles, key=lambda bundle: bundle.node), key=lambda bundle: bundle.node)
    contents = [(node, Counter(map(_size, group))) for node, group in of_nodes]
    shown = []
    for content, alike in groupby(contents, key=lambda entry: entry[1]):
        nodes = [node for node, _ in alike]
        where = f"node {nodes[0]}" if len(nodes) == 1 else f"each of nodes {nodes[0]} to {nodes[-1]}"
        shown.append(", ".join(f"{count} x {size}" for size, count in content.items()) + f" on {where}")
    return "; ".join(shown) or "nothing"


def _size(bundle: Bundle) -> str:
    amounts = {"CPU": bundle.cpus, "GPU": bundle.gpus}
    return "(" + " + ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount) + ")"


def _process(recipe: Recipe, cluster: Cluster, shape: ModelShape, placed: Placed) -> Process:
    accelerator = cluster.accelerator if placed.devices else "cpu"
    devices = device_environment([str(device) for device in placed.devices], accelerator)
    if placed.kind == "learner":
        demand = learner_demand(recipe, shape) if placed.devices else None
        environment = learner_environment(recipe, accelerator)
        return Process(placed, devices | environment, [], demand)
    host = LOOPBACK if cluster.nodes == 1 else ADDRESS
    port = FIRST_PORT + placed.index
    secrets = Path("SECRETS.yaml")
    spec = launch_spec(recipe, WEIGHTS, 0, host, port, accelerator, recipe.seed, secrets)
    command = ["python" if word == sys.executable else word for word in spec.command]
    demand = engine_demand(recipe, shape, GPUS[cluster.kind].memory) if cluster.kind and placed.devices else None
    return Process(placed, devices | spec.env, command, demand)


def _problems(
    processes: list[Process], shared: dict[str, Demand], cluster: Cluster, gpu_memory: int | None, host_memory: int
) -> list[str]:
    problems = []
    if host_memory > USUAL_HOST_MEMORY:
        problems.append(
            f"the learner gathers the whole model on one host to write it: {host_memory / GIB:.0f} GiB, where nodes "
            f"commonly have {USUAL_HOST_MEMORY / GIB:.0f}. Choose a smaller model"
        )
    for name in ("engine", "learner"):
        first = next(process for process in processes if process.place.kind == name)
        if first.demand and gpu_memory and first.demand.total > gpu_memory:
            problems.append(
                f"{first.place.name} needs {describe(first.demand)} on each GPU; a {cluster.kind} has "
                f"{gpu_memory / GIB:.1f}. "
                + ("Raise engine.gpus" if name == "engine" else "Raise learner.ranks or lower micro_batch_tokens")
                + ", or choose a smaller model"
            )
    for turn, demand in shared.items():
        if gpu_memory and demand.total > gpu_memory:
            problems.append(
                f"engine and rank together need {describe(demand)} on each GPU during the {turn}; a {cluster.kind} has "
                f"{gpu_memory / GIB:.1f}. Lower "
                + ("engine.memory_fraction" if turn == "rollout" else "optimizer.micro_batch_tokens")
                + ", add GPUs, or choose a smaller model"
            )
    return problems
