"""Where the processes of a recipe go on a cluster, as a pure function: engines first, then the learner's ranks."""

from dataclasses import dataclass
from typing import Literal

from configs.errors import UserError
from configs.schema import Recipe
from tasks.runtime.machines import Cluster


@dataclass(frozen=True)
class Placed:
    """An actor on its node, with the GPUs that it sees, by their index there."""

    kind: Literal["engine", "learner"]
    index: int
    node: int
    devices: tuple[int, ...]

    @property
    def name(self) -> str:
        """The Ray actor's name."""
        return f"{self.kind}-{self.index}"


def place(recipe: Recipe, cluster: Cluster) -> list[Placed]:
    """Give every engine and rank its node and GPUs, in their order; on a CPU all go to the one node.

    An engine's GPUs are on one node. What is left of a node that is too small for it, the learner's ranks may use.

    Raises:
        UserError: the cluster is too small; says what is needed and what there is.
    """
    engine, learner = recipe.engine, recipe.learner
    free = [list(range(cluster.gpus)) for _ in range(cluster.nodes)]
    wanted = [("engine", index, engine.gpus) for index in range(engine.count)]
    wanted += [("learner", index, learner.gpus) for index in range(learner.ranks)]
    placed: list[Placed] = []
    for kind, index, count in wanted:
        node = next((number for number, devices in enumerate(free) if len(devices) >= count), None)
        if node is None:
            raise UserError(_too_small(recipe, cluster, f"{kind}-{index}"))
        taken, free[node] = free[node][:count], free[node][count:]
        placed.append(Placed("engine" if kind == "engine" else "learner", index, node, tuple(taken)))
    return placed


def _too_small(recipe: Recipe, cluster: Cluster, first: str) -> str:
    engine, learner = recipe.engine, recipe.learner
    total = engine.count * engine.gpus + learner.ranks * learner.gpus
    if engine.gpus > cluster.gpus:
        return (
            f"engine.gpus is {engine.gpus}, but a node has {cluster.gpus}: an engine can't span nodes. "
            "Lower engine.gpus, or use nodes with more GPUs"
        )
    return (
        f"there is no place left for {first}: {engine.count} engines of {engine.gpus} GPUs and {learner.ranks} learner "
        f"ranks of {learner.gpus} need {total} GPUs, the cluster has {cluster.nodes} nodes of {cluster.gpus}. "
        "Lower engine.count or learner.ranks, or add nodes"
    )
