"""Does a recipe fit? One check, for the plan of machines that are not here and for the cluster that is."""

from collections.abc import Sequence
from dataclasses import dataclass

from configs.errors import UserError
from configs.schema import Recipe
from tasks.cluster.machines import Gpu
from tasks.cluster.memory import (
    Demand,
    cached_tokens,
    engine_demand,
    engine_host_demand,
    learner_demand,
    learner_host_demand,
    shared_demand,
)
from tasks.cluster.placement import Layout, Node, place
from trainer.model.shape import ModelShape, untrainable
from trainer.model.tokens import beyond_positions

GIB = 2**30
TASK_CPUS = 0.25
"""CPUs that a task holds in Ray. A task mostly waits for an actor: four of them share a core."""
PROCESSES = 4 * GIB
"""Bytes of a node's memory, an estimate: the processes of Ray, Prefect and SGLang before any weights are loaded."""


@dataclass(frozen=True)
class Capacity:
    """What a recipe takes of some nodes.

    Attributes:
        layout: where its actors go.
        engine: bytes on each GPU of an engine; None where it has none, or nothing is known of model or GPU.
        learner: bytes on the GPU of a rank; None likewise.
        shared: what both take of a GPU that they share, by whose turn it is; empty where they don't.
        hosts: bytes of each node's own memory, by node; empty where nothing is known of the model.
        cached_tokens: that the KV cache of an engine on GPUs holds.
        problems: why it can't work; with none it fits, as far as estimates can tell.
    """

    layout: Layout
    engine: Demand | None
    learner: Demand | None
    shared: dict[str, Demand]
    hosts: dict[int, Demand]
    cached_tokens: int | None
    problems: list[str]


def capacity(recipe: Recipe, nodes: Sequence[Node], gpu: Gpu | None, shape: ModelShape | None) -> Capacity:
    """Compare a recipe with nodes.

    Args:
        recipe: The recipe.
        nodes: What they have, largest first.
        gpu: Their kind of GPU; None where they have none, or one that is not known.
        shape: The model's; None before it was downloaded: memory is then not compared.

    Raises:
        UserError: there is no place for an engine or a rank; says what is needed and what there is.
    """
    layout = place(recipe, nodes)
    engine = learner = cached = None
    shared: dict[str, Demand] = {}
    if gpu and shape:
        if recipe.engine.gpus:
            engine, cached = engine_demand(recipe, shape, gpu.memory), cached_tokens(recipe, shape, gpu.memory)
        if recipe.learner.gpus:
            learner = learner_demand(recipe, shape)
        if recipe.engine.colocated:
            shared = shared_demand(recipe, shape, gpu.memory)
    hosts = _hosts(recipe, layout, shape) if shape else {}
    problems = [
        *([untrainable(recipe.model.path, shape.quantisation)] if shape and shape.quantisation else []),
        *_too_long(recipe, shape),
        *_too_small_cache(recipe),
        *_without_cpu_for_tasks(recipe, nodes),
        *_too_large_for_hosts(hosts, nodes),
    ]
    if gpu:
        problems += _too_large_for_gpus(gpu, engine, learner, shared)
    return Capacity(
        layout=layout,
        engine=engine,
        learner=learner,
        shared=shared,
        hosts=hosts,
        cached_tokens=cached,
        problems=problems,
    )


def require(found: Capacity) -> None:
    """Refuse what does not fit: Ray would wait for it for ever, or a process would run out of memory.

    Raises:
        UserError: says all that is wrong.
    """
    if found.problems:
        raise UserError(f"the recipe does not fit the cluster: {'; '.join(found.problems)}")


def describe(demand: Demand | None) -> str:
    """Show a demand in GiB, its largest parts first."""
    if demand is None:
        return ""
    parts = sorted(demand.parts.items(), key=lambda part: -part[1])
    shown = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size >= 0.05 * GIB)
    return f"{demand.total / GIB:.1f} GiB: {shown}"


def _too_long(recipe: Recipe, shape: ModelShape | None) -> list[str]:
    problem = beyond_positions(recipe.model.path, recipe.model.context_length, shape.positions if shape else None)
    return [problem] if problem else []


def _hosts(recipe: Recipe, layout: Layout, shape: ModelShape) -> dict[int, Demand]:
    """Return what the processes of each node take of its own memory."""
    hosts: dict[int, dict[str, int]] = {}
    for placed in layout.placed:
        parts = hosts.setdefault(placed.node, {"processes": PROCESSES})
        own = engine_host_demand(recipe, shape) if placed.kind == "engine" else learner_host_demand(recipe, shape)
        for name, size in own.parts.items():
            parts[f"{placed.kind}'s {name}"] = parts.get(f"{placed.kind}'s {name}", 0) + size
    return {node: Demand(parts) for node, parts in hosts.items()}


def _too_small_cache(recipe: Recipe) -> list[str]:
    """A response that does not fit into the cache is cut before its limit, and looks like one at the limit."""
    engine, needed = recipe.engine, recipe.model.served_context
    if engine.gpus or engine.max_total_tokens >= needed:
        return []
    return [
        f"engine.max_total_tokens ({engine.max_total_tokens}) can't hold one sample of model.context_length "
        f"{recipe.model.context_length}: set at least {needed}"
    ]


def _without_cpu_for_tasks(recipe: Recipe, nodes: Sequence[Node]) -> list[str]:
    engine, learner = recipe.engine, recipe.learner
    needed = engine.count * engine.cpus + learner.ranks * learner.cpus + TASK_CPUS
    there = sum(node.cpus for node in nodes)
    if needed <= there:
        return []
    return [
        f"engines, ranks and one task need {needed:g} CPU, the cluster has {there:g}. Lower engine.cpus or learner.cpus"
    ]


def _too_large_for_hosts(hosts: dict[int, Demand], nodes: Sequence[Node]) -> list[str]:
    """Name the first node that is too small; others alike would say the same."""
    for node, demand in hosts.items():
        if demand.total > nodes[node].memory:
            return [
                f"node {node} needs {describe(demand)} of its own memory and has {nodes[node].memory / GIB:.1f}. Use "
                "more nodes, lower learner.ranks or engine.count, or choose a smaller model"
            ]
    return []


def _too_large_for_gpus(
    gpu: Gpu, engine: Demand | None, learner: Demand | None, shared: dict[str, Demand]
) -> list[str]:
    demands = [
        ("engine-0", engine, "Raise engine.gpus, or choose a smaller model"),
        ("learner-0", learner, "Raise learner.ranks or lower micro_batch_tokens, or choose a smaller model"),
    ]
    problems = [
        f"{name} needs {describe(demand)} on each GPU; a {gpu.name} has {gpu.memory / GIB:.1f}. {remedy}"
        for name, demand, remedy in demands
        if demand and demand.total > gpu.memory
    ]
    if learner and learner.loading > gpu.memory:
        problems.append(
            f"learner-0 takes {learner.loading / GIB:.1f} GiB of its GPU while it loads, the whole model in float32 "
            f"before that is sharded; a {gpu.name} has {gpu.memory / GIB:.1f}. Choose a smaller model"
        )
    settings = {"rollout": "engine.memory_fraction", "update": "optimizer.micro_batch_tokens"}
    return problems + [
        f"engine and rank together need {describe(demand)} on each GPU during the {turn}; a {gpu.name} has "
        f"{gpu.memory / GIB:.1f}. Lower {settings[turn]}, add GPUs, or choose a smaller model"
        for turn, demand in shared.items()
        if demand.total > gpu.memory
    ]
