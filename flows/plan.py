"""What a recipe would start on a cluster, which need not exist: processes, devices, commands, memory, limits."""

import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from configs.loader import dump_yaml
from configs.papers import differences
from configs.schema import Recipe
from tasks.cluster.capacity import Capacity, capacity, describe
from tasks.cluster.devices import TYPE, device_environment, gpu_type
from tasks.cluster.limits import Limits, described, limits
from tasks.cluster.machines import Cluster
from tasks.cluster.placement import Bundle, Placed
from tasks.processes.network import LOOPBACK
from tasks.server.launch import launch_spec
from tasks.update.environment import learner_environment
from trainer.model.shape import model_shape
from trainer.model.tokens import named_ends

FIRST_PORT = 30000
WEIGHTS = Path("WEIGHTS")
"""Stands for the folder of a weights version in commands."""
ADDRESS = "NODE"
"""Stands for a node's address where there are several."""


@dataclass(frozen=True)
class Process:
    """A planned process; `command` is empty for one that Ray starts."""

    place: Placed
    environment: dict[str, str]
    command: list[str]


@dataclass(frozen=True)
class LaunchPlan:
    """A recipe on a cluster: its processes, what it takes, and how long each stage may take."""

    cluster: Cluster
    processes: list[Process]
    capacity: Capacity
    limits: Limits


def launch_plan(recipe: Recipe, cluster: Cluster) -> LaunchPlan:
    """Derive the plan; a pure function of recipe and cluster.

    Raises:
        UserError: the cluster has not enough GPUs, or others than the recipe's, or the model's size is not known.
    """
    if cluster.gpu:
        gpu_type(recipe.accelerator_type, {f"{TYPE}{cluster.gpu.ray_type}": cluster.count})
    shape = model_shape(recipe.model.path)
    found = capacity(recipe, cluster.nodes, cluster.gpu, shape)
    processes = [_process(recipe, cluster, placed) for placed in found.layout.placed]
    return LaunchPlan(cluster, processes, found, limits(recipe, shape.parameters))


def show(recipe: Recipe, plan: LaunchPlan, console: Console, model: Path | None = None) -> None:
    """Print the resolved recipe, the plan, what is known of the model's tokens if its folder is here, and what the
    cited papers set otherwise.
    """
    found = plan.capacity
    console.print(dump_yaml(recipe), markup=False, highlight=False)
    if recipe.stop:
        ends = f"a response also ends at: {', '.join(map(repr, recipe.stop))}"
        console.print(ends, markup=False, highlight=False, soft_wrap=True)
    gpu = plan.cluster.gpu
    title = "what would start" + (f", on nodes of Ray's accelerator_type:{gpu.ray_type}" if gpu else "")
    table = Table("processes", "node", "GPUs", "memory of each GPU", title=title, title_justify="left")
    demands = {"engine": found.engine, "learner": found.learner}
    for (kind, node), members in groupby(plan.processes, key=lambda process: (process.place.kind, process.place.node)):
        first, *_, last = [*members] * 2
        names = f"{kind} {first.place.index}" + (f" to {last.place.index}" if first != last else "")
        devices = [*first.place.devices, *last.place.devices]
        span = f"{devices[0]} to {devices[-1]}" if len(set(devices)) > 1 else ", ".join(map(str, devices[:1]))
        table.add_row(names, str(node), span or "none", describe(demands[kind] if devices else None))
    console.print(table)
    for kind in ("engine", "learner"):
        first = next(process for process in plan.processes if process.place.kind == kind)
        console.print(f"{first.place.name}, and the others alike:")
        words = [f"{name}={value}" for name, value in first.environment.items()] + first.command
        console.print(f"  {shlex.join(words) or 'a Ray actor'}", soft_wrap=True, markup=False, highlight=False)
    for turn, demand in found.shared.items():
        console.print(f"each GPU during the {turn}, shared by an engine and a rank: {describe(demand)}")
    held = describe_bundles(found.layout.bundles)
    console.print(f"placement {recipe.engine.placement}, held by Ray: {held}", soft_wrap=True)
    for alike, members in groupby(found.hosts.items(), key=lambda host: host[1]):
        nodes = [node for node, _ in members]
        console.print(f"memory of {_span(nodes)} itself: {describe(alike)}", soft_wrap=True)
    if found.cached_tokens is not None:
        console.print(f"the KV cache of an engine holds {found.cached_tokens} tokens")
    if model:
        console.print(f"a response ends at: {named_ends(model)}", soft_wrap=True, markup=False, highlight=False)
    attempts = ", ".join(f"{name} {length}" for name, length in described(plan.limits).items())
    console.print(f"an attempt is ended after: {attempts}", soft_wrap=True)
    for method, others in groupby(differences(recipe), key=lambda difference: difference.method):
        console.print(f"{method}, where the paper has other settings:", markup=False, highlight=False)
        for difference in others:
            console.print(f"  {difference}", soft_wrap=True, markup=False, highlight=False)
    for problem in found.problems:
        console.print(f"[red]does not fit:[/] {problem}", soft_wrap=True)


def describe_bundles(bundles: list[Bundle]) -> str:
    """Show what is reserved on each node. Equal neighbouring nodes share an entry."""
    of_nodes = groupby(sorted(bundles, key=lambda bundle: bundle.node), key=lambda bundle: bundle.node)
    contents = [(node, Counter(map(_size, group))) for node, group in of_nodes]
    shown = []
    for content, alike in groupby(contents, key=lambda entry: entry[1]):
        where = _span([node for node, _ in alike])
        shown.append(", ".join(f"{count} x {size}" for size, count in content.items()) + f" on {where}")
    return "; ".join(shown) or "nothing"


def _span(nodes: list[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"each of nodes {nodes[0]} to {nodes[-1]}"


def _size(bundle: Bundle) -> str:
    amounts = {"CPU": bundle.cpus, "GPU": bundle.gpus}
    return "(" + " + ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount) + ")"


def _process(recipe: Recipe, cluster: Cluster, placed: Placed) -> Process:
    accelerator = cluster.accelerator if placed.devices else "cpu"
    devices = device_environment([str(device) for device in placed.devices], accelerator)
    if placed.kind == "learner":
        return Process(placed, devices | learner_environment(recipe, accelerator), [])
    host = LOOPBACK if cluster.count == 1 else ADDRESS
    port = FIRST_PORT + placed.index
    spec = launch_spec(recipe, WEIGHTS, 0, host, port, accelerator, recipe.seed, Path("SECRETS.yaml"))
    command = ["python" if word == sys.executable else word for word in spec.command]
    return Process(placed, devices | spec.env, command)
