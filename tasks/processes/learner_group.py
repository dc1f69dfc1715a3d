"""The learner's ranks together: in one process group, each with its GPU free."""

from collections.abc import Sequence
from typing import Any

from tasks.cluster.devices import Accelerator, device_environment, vendor
from tasks.cluster.limits import limits_of
from tasks.processes.actors import ask, engines, ranks
from tasks.processes.nodes import offered
from tasks.run.directory import Run


def learner_ranks(run: Run, version: int | None = None) -> list[Any]:
    """Return the learner's ranks, each with its GPU free. Several ranks are joined in one process group.

    Args:
        run: The run.
        version: Given if only the weights of this version are needed. Ranks that have them in memory need no room for a
            replay, so engines on their GPUs keep their memory.
    """
    met = ranks(run)
    if len(met) == 1 and not run.recipe.engine.colocated:
        return met  # It needs no group. It may be busy, so it is not asked anything.
    answer = run.recipe.timeouts.answer
    # A rank that waits for a lost one is ended. If only weights are needed, an update may still be running.
    patience = answer if version is None else limits_of(run).learner
    held = ask(met, "held", timeout=patience)
    if any(version not in own for own in held):
        take_turn(run, met, learner_accelerator(run))
    if len(met) > 1:
        groups = set(ask(met, "group", timeout=patience))
        if len(groups) > 1 or None in groups or len(set(held)) > 1:
            (address,) = ask(met[:1], "address", timeout=answer)
            ask(met, "join", address, len(met), timeout=answer)
    return met


def take_turn(run: Run, met: Sequence[Any], accelerator: Accelerator) -> None:
    """Have colocated engines release their memory, and tell each rank its GPU. Both may be done already.

    The engines' actors hold the GPUs in Ray and know which ones, even after a restart on another node. Rank r uses the
    r-th GPU of all engines. The engines must be idle.
    """
    if not run.recipe.engine.colocated:
        return
    owners, answer = engines(run), run.recipe.timeouts.answer
    ask(owners, "release", timeout=answer)
    devices = [device for own in ask(owners, "devices", timeout=answer) for device in own]
    for rank, device in zip(met, devices, strict=True):
        ask([rank], "use_devices", device_environment([device], accelerator), timeout=answer)


def learner_accelerator(run: Run) -> Accelerator:
    """Return the hardware that the learner is on."""
    return vendor(run.recipe.accelerator_type, offered()) if run.recipe.learner.gpus else "cpu"
