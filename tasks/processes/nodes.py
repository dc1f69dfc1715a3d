"""The nodes of the Ray cluster that this process is connected to, and whether a recipe fits them."""

from collections.abc import Mapping

import ray

from configs.errors import UserError
from configs.schema import Recipe
from tasks.cluster.capacity import capacity, require
from tasks.cluster.devices import TYPE, gpu_type
from tasks.cluster.machines import gpu_of
from tasks.cluster.placement import Node
from trainer.model.shape import ModelShape, model_shape


def offered() -> Mapping[str, float]:
    """Return the resources of the cluster: CPU, GPU, memory (bytes) and accelerator types."""
    return ray.cluster_resources()


def nodes_of_type(gpus: str | None = None) -> list[Node]:
    """Return what each node of the cluster has, largest nodes first, in the order in which Ray fills them.

    Args:
        gpus: The only type of GPUs that counts, as Ray names it; None counts all.
    """
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [
        Node(
            has.get("CPU", 0.0),
            int(has.get("GPU", 0)) if gpus is None or f"{TYPE}{gpus}" in has else 0,
            has.get("memory", 0.0),
        )
        for has in alive
    ]
    return sorted(nodes, key=lambda node: (-node.gpus, -node.cpus))


def check_fits(recipe: Recipe) -> None:
    """Refuse a recipe that the cluster can't hold.

    Raises:
        UserError: says what is needed and what there is, or that the recipe has to choose a type of GPUs.
    """
    on_gpus = recipe.engine.gpus or recipe.learner.gpus
    found = gpu_type(recipe.accelerator_type, offered()) if on_gpus else None
    nodes = nodes_of_type(recipe.accelerator_type if on_gpus else None)
    require(capacity(recipe, nodes, gpu_of(found), _shape(recipe.model.path)))


def _shape(path: str) -> ModelShape | None:
    """Return the shape of a model, or None where it is not known before a download."""
    try:
        return model_shape(path)
    except UserError:
        return None
