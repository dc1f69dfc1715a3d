"""What a run holds of a Ray cluster: one placement group, made before anything starts, gone when the run is over.

If a node is lost, Ray moves its bundles to a node with room for them, and then restarts the actors there.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from configs.errors import UserError
from configs.schema import Recipe
from tasks.cluster.devices import TYPE
from tasks.cluster.placement import Bundle, place
from tasks.processes.nodes import nodes_of_type

A_LITTLE = 0.001  # Share of the one unit that a node has of its GPU type. Ray counts down to 0.0001.

Seats = Mapping[str, PlacementGroupSchedulingStrategy]
"""By an actor's name: its place in the group. An actor that needs no resources has none, and runs anywhere."""


@contextmanager
def reserved(recipe: Recipe) -> Iterator[Seats]:
    """Reserve the resources of a recipe's actors for the length of the block.

    Raises:
        UserError: the cluster is too small, or others hold too much of it for too long.
    """
    layout = place(recipe, nodes_of_type(recipe.accelerator_type))
    if not layout.bundles:  # Ray has no empty bundles.
        yield {}
        return
    with held(layout.bundles, recipe.timeouts.resources, recipe.accelerator_type) as group:
        yield {
            placed.name: PlacementGroupSchedulingStrategy(group, placed.bundle)
            for placed in layout.placed
            if placed.bundle is not None
        }


@contextmanager
def held(bundles: Sequence[Bundle], timeout: float, gpus: str | None = None) -> Iterator[PlacementGroup]:
    """Reserve bundles for the length of the block, on nodes with GPUs of the given type, if any.

    Raises:
        UserError: they are not free within `timeout` seconds; says what is needed and what there is. Nothing is held.
    """
    # PACK keeps the ranks of one node neighbours. Ray drops the group when the driver ends, however it ends.
    group = placement_group([_resources(bundle, gpus) for bundle in bundles], strategy="PACK")
    try:
        if not _ready(group, timeout):
            raise UserError(_still_taken(bundles, timeout))
        yield group
    finally:
        remove_placement_group(group)


def _ready(group: PlacementGroup, timeout: float) -> bool:
    """Wait for a group, in short turns: Ray's own wait would hear no signal."""
    deadline = time.monotonic() + timeout
    while not group.wait(min(1.0, timeout)):
        if time.monotonic() > deadline:
            return False
    return True


def _resources(bundle: Bundle, gpus: str | None) -> dict[str, float]:
    typed = A_LITTLE if gpus and bundle.gpus else 0.0
    amounts = {"CPU": bundle.cpus, "GPU": float(bundle.gpus), f"{TYPE}{gpus}": typed}
    return {name: amount for name, amount in amounts.items() if amount}


def _still_taken(bundles: Sequence[Bundle], timeout: float) -> str:
    free = ray.available_resources()
    needs = " and ".join(
        f"{sum(getattr(bundle, of) for bundle in bundles):g} {name} (free: {free.get(name, 0):g})"
        for name, of in (("CPU", "cpus"), ("GPU", "gpus"))
    )
    return (
        f"engines and learner need {needs}, but Ray could not place {len(bundles)} bundles within {timeout:g} s; the "
        f"largest takes {max(bundle.cpus for bundle in bundles):g} CPU and "
        f"{max(bundle.gpus for bundle in bundles)} GPU of one node. End other runs, or lower engine.count, engine.gpus "
        "or learner.ranks"
    )
