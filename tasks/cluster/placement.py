"""Where the processes of a recipe go on a cluster, as a pure function: engines first, then the learner's ranks.

What has to be on one node is one bundle, the unit that Ray reserves: an engine with its GPUs, or the ranks that share a
node. So ranks that follow each other stay neighbours where Ray moves a bundle to another node. A colocated rank is in
the bundle of the engine whose GPU it shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Literal

from configs.errors import UserError
from configs.schema import Recipe

Kind = Literal["engine", "learner"]


def actor_name(kind: Kind, index: int) -> str:
    """Return the name of an actor of a run, which is also that of its log."""
    return f"{kind}-{index}"


@dataclass(frozen=True)
class Node:
    """What a node has for engines and ranks; infinite is what is not known of one that is not here.

    Attributes:
        cpus: CPUs.
        gpus: GPUs of the run's type.
        memory: bytes.
    """

    cpus: float
    gpus: int
    memory: float = inf


@dataclass(frozen=True)
class Bundle:
    """What is reserved together, on one node."""

    node: int
    cpus: float
    gpus: int


@dataclass(frozen=True)
class Placed:
    """An actor on its node.

    Attributes:
        kind: what it is.
        index: counts the actors of its kind.
        node: counts the nodes.
        devices: the GPUs that it sees, by their index on the node.
        bundle: the index of its bundle; None for an actor that asks for nothing.
    """

    kind: Kind
    index: int
    node: int
    devices: tuple[int, ...]
    bundle: int | None

    @property
    def name(self) -> str:
        """The Ray actor's name."""
        return actor_name(self.kind, self.index)


@dataclass(frozen=True)
class Layout:
    """A recipe's actors on a cluster, and what is reserved for them."""

    placed: list[Placed]
    bundles: list[Bundle]


@dataclass(frozen=True)
class _Wanted:
    kind: Kind
    index: int
    cpus: float
    gpus: int


def place(recipe: Recipe, nodes: Sequence[Node]) -> Layout:
    """Give every engine and rank, in their order, the first node with room for it, and GPUs there.

    An engine is on one node. What is left of a node that is too small for a further engine, the ranks may use.

    Raises:
        UserError: the cluster is too small; says what is needed and what there is.
    """
    placed: list[Placed] = []
    bundles: list[Bundle] = []
    spots = _first_fit(recipe, nodes)
    for (kind, _), group in groupby(spots, key=lambda spot: _bundle_key(*spot)):
        members = list(group)
        node = members[0][1]
        cpus, gpus = (sum(getattr(wanted, of) for wanted, *_ in members) for of in ("cpus", "gpus"))
        bundle = len(bundles) if cpus or gpus else None
        bundles += [] if bundle is None else [Bundle(node, cpus, gpus)]
        placed += [Placed(kind, wanted.index, node, devices, bundle) for wanted, _, devices in members]
    if recipe.engine.colocated:
        shared = [(engine, device) for engine in placed for device in engine.devices]
        placed += [Placed("learner", rank, e.node, (device,), e.bundle) for rank, (e, device) in enumerate(shared)]
    return Layout(placed, bundles)


def _wanted(recipe: Recipe) -> list[_Wanted]:
    """Return what the actors ask for; an engine asks for its colocated ranks too."""
    engine, learner = recipe.engine, recipe.learner
    guests = engine.gpus if engine.colocated else 0
    engines = [_Wanted("engine", i, engine.cpus + guests * learner.cpus, engine.gpus) for i in range(engine.count)]
    ranks = [] if guests else [_Wanted("learner", i, learner.cpus, learner.gpus) for i in range(learner.ranks)]
    return engines + ranks


def _first_fit(recipe: Recipe, nodes: Sequence[Node]) -> list[tuple[_Wanted, int, tuple[int, ...]]]:
    """Return what is wanted, each with its node and its GPUs there."""
    cpus = [node.cpus for node in nodes]
    devices = [tuple(range(node.gpus)) for node in nodes]
    spots = []
    for wanted in _wanted(recipe):
        fitting = (n for n in range(len(nodes)) if cpus[n] >= wanted.cpus and len(devices[n]) >= wanted.gpus)
        node = next(fitting, None)
        if node is None:
            raise UserError(_too_small(recipe, nodes, wanted))
        cpus[node] -= wanted.cpus
        spots.append((wanted, node, devices[node][: wanted.gpus]))
        devices[node] = devices[node][wanted.gpus :]
    return spots


def _bundle_key(wanted: _Wanted, node: int, _devices: tuple[int, ...]) -> tuple[Kind, int]:
    """Tell apart what is reserved together: each engine, and the ranks of each node."""
    return wanted.kind, wanted.index if wanted.kind == "engine" else node


def _too_small(recipe: Recipe, nodes: Sequence[Node], first: _Wanted) -> str:
    largest = max((node.gpus for node in nodes), default=0)
    if recipe.engine.gpus > largest:
        return (
            f"engine.gpus is {recipe.engine.gpus}, but a node has {largest}: an engine can't span nodes. "
            "Lower engine.gpus, or use nodes with more GPUs"
        )
    everything = _wanted(recipe)
    needs = _amount(sum(wanted.cpus for wanted in everything), sum(wanted.gpus for wanted in everything))
    has = _amount(sum(node.cpus for node in nodes), sum(node.gpus for node in nodes))
    return (
        f"there is no place left for {first.kind}-{first.index}, which asks for {_amount(first.cpus, first.gpus)} on "
        f"one node: engines and learner ranks need {needs}, the cluster has {has} on {len(nodes)} nodes. "
        "Lower engine.count or learner.ranks, or add nodes"
    )


def _amount(cpus: float, gpus: int) -> str:
    return f"{cpus:g} CPU and {gpus} GPU" if cpus and cpus != inf else f"{gpus} GPU"
