"""The learner's turn on GPUs that it shares with the engines."""

from collections.abc import Sequence
from typing import Any

from configs.schema import Recipe
from tasks.runtime.accelerator import Accelerator
from tasks.runtime.cluster import ask, find_actor
from tasks.runtime.devices import device_environment, unset_by_ray
from tasks.runtime.ledger import Run

TIMEOUT = 300.0  # Seconds for engines to give their memory back, and to answer.


def sharing_environment(recipe: Recipe, accelerator: Accelerator) -> dict[str, str]:
    """Return what a rank's environment needs so that Ray leaves it the GPU that `take_turn` shows it."""
    return unset_by_ray(accelerator) if recipe.engine.colocated else {}


def take_turn(run: Run, ranks: Sequence[Any], accelerator: Accelerator) -> None:
    """Have colocated engines give their memory back, and show each rank its GPU; both may be done already.

    The engines' actors hold the GPUs in Ray and know which they are, on whatever node they were started last; rank r
    is beside the GPU r of all engines. The engines must have nothing to do.
    """
    if not run.recipe.engine.colocated:
        return
    engines = [find_actor(run.id, f"engine-{index}") for index in range(run.recipe.engine.count)]
    ask(engines, "release", timeout=TIMEOUT)
    devices = [device for own in ask(engines, "devices", timeout=TIMEOUT) for device in own]
    for rank, device in zip(ranks, devices, strict=True):
        ask([rank], "see", device_environment([device], accelerator), timeout=TIMEOUT)
