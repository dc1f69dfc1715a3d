"""Ray: what the cluster offers, whether a recipe fits it, and the named actors that hold long-lived state."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from configs.errors import UserError
from configs.schema import Recipe
from tasks.cluster.placement import actor_name
from tasks.orchestrator.dispatch import TASK_CPUS
from tasks.processes.reservation import Seats
from tasks.run.directory import Run

# Bytes, an estimate: the processes of Ray, Prefect, SGLang and the learner before any weights are loaded.
BASE_MEMORY = 4 * 2**30
STOP_TIMEOUT = 20.0  # Seconds that an actor has to end its processes before it is killed.
NAME_TIMEOUT = 60.0  # Seconds until Ray has cleared away the actors of a driver that was killed.
NO_SEATS: Seats = {}


def offered() -> Mapping[str, float]:
    """Return the resources of the cluster: CPU, GPU, memory (bytes) and accelerator types."""
    return ray.cluster_resources()


def needed(recipe: Recipe) -> dict[str, float]:
    """Return what a recipe asks of the cluster: CPU, GPU, and memory (bytes, an estimate)."""
    engines, learner = recipe.engine, recipe.learner
    weight_bytes = _weight_bytes(recipe.model.path)
    # An engine holds its weights twice while it loads new ones. A learner holds weights, gradients and two moments, and
    # what it trains of the versions that engines may lag behind; of adapters that is next to nothing.
    held = 4 + (0 if learner.lora else recipe.versions_kept)
    host_memory = BASE_MEMORY + 2 * weight_bytes * engines.count + held * weight_bytes
    return {
        "CPU": engines.count * engines.cpus + learner.ranks * learner.cpus + TASK_CPUS,
        "GPU": engines.count * engines.gpus + (0 if engines.colocated else learner.ranks * learner.gpus),
        "memory": host_memory,
    }


def _weight_bytes(model: str) -> int:
    """Return the size of a model's weights in fp32, and 0 where it can't be known before a download."""
    known = {"tiny": 4 * 1_600_000, "smollm2": 4 * 134_500_000}
    return known.get(model) or sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))


def check_fit(needs: Mapping[str, float], offers: Mapping[str, float]) -> None:
    """Refuse a placement that can never be had: Ray would wait for it for ever.

    Raises:
        UserError: names each resource, what is needed and what there is.
    """
    scale = {"memory": (2**30, " GiB")}
    short = []
    for name, need in needs.items():
        unit, label = scale.get(name, (1, ""))
        if need > offers.get(name, 0):
            short.append(f"{name} {need / unit:.4g}{label} (the cluster has {offers.get(name, 0) / unit:.4g}{label})")
    if short:
        raise UserError(
            f"the recipe does not fit the cluster; it needs {', '.join(short)}. "
            "Lower engine.count, learner.ranks or the model's size, or add nodes to Ray"
        )


class ActorHangs(RuntimeError):
    """An actor did not answer in time. It was ended, and Ray starts it again."""


def engines(run: Run) -> list[Any]:
    """Return the actors of a run's engines."""
    return [find_engine(run, index) for index in range(run.recipe.engine.count)]


def find_engine(run: Run, index: int) -> Any:
    """Return the actor of one engine."""
    return find_actor(run.id, actor_name("engine", index))


def ranks(run: Run) -> list[Any]:
    """Return the actors of the learner's ranks."""
    return [find_actor(run.id, actor_name("learner", rank)) for rank in range(run.recipe.learner.ranks)]


def find_actor(run_id: str, name: str) -> Any:
    """Return a run's actor by name."""
    return ray.get_actor(name, namespace=run_id)


def ask(actors: Sequence[Any], method: str, *arguments: Any, timeout: float) -> list[Any]:
    """Call a method of several actors at once, and return their answers.

    Ray itself would wait for ever, and a task's own time limit can't end a wait inside Ray. An actor that is just being
    started again is waited for.

    Raises:
        ActorHangs: an actor did not answer within `timeout` seconds.
        RayError: an actor died, or the method raised.
    """
    _wait_until_started(actors, timeout)
    return _answers(actors, method, arguments, timeout)


@contextmanager
def actors(
    run_id: str, classes: dict[str, tuple[type, dict[str, Any], dict[str, Any]]], seats: Seats = NO_SEATS
) -> Iterator[None]:
    """Keep a run's named actors for the length of the block; end them and their processes however it ends.

    Ray restarts an actor that dies. It comes back empty: the task that needs it next brings it up to date.

    Args:
        run_id: The run, Ray's namespace for the names.
        classes: By actor name: the class, its arguments, and Ray's options (resources, environment).
        seats: Where those that have a reservation go.
    """
    handles = [
        _create(
            run_id, name, kind, arguments, options | ({"scheduling_strategy": seats[name]} if name in seats else {})
        )
        for name, (kind, arguments, options) in classes.items()
    ]
    try:
        yield
    finally:
        wait([handle.stop.remote().future() for handle in handles], timeout=STOP_TIMEOUT)  # Ray's hears no signal.
        for handle in handles:
            with suppress(RayError):
                ray.kill(handle)


def _wait_until_started(actors: Sequence[Any], timeout: float) -> None:
    unavailable = retry_if_exception_type(ActorUnavailableError)
    waiting = retry(retry=unavailable, wait=wait_fixed(0.5), stop=stop_after_delay(timeout), reraise=True)
    waiting(_answers)(actors, "__ray_ready__", (), timeout)


def _answers(actors: Sequence[Any], method: str, arguments: Sequence[Any], timeout: float) -> list[Any]:
    asked = [getattr(actor, method).remote(*arguments) for actor in actors]
    try:
        return ray.get(asked, timeout=timeout)
    except GetTimeoutError:
        _, late = ray.wait(asked, num_returns=len(asked), timeout=0)
        for actor in (actor for actor, answer in zip(actors, asked, strict=True) if answer in late):
            ray.kill(actor, no_restart=False)
        raise ActorHangs(
            f"{len(late)} of {len(asked)} actors did not answer {method} within {timeout:g} s; ended, to start again"
        ) from None


@retry(
    retry=retry_if_exception_type(ValueError), wait=wait_fixed(1.0), stop=stop_after_delay(NAME_TIMEOUT), reraise=True
)
def _create(run_id: str, name: str, kind: type, arguments: dict[str, Any], options: dict[str, Any]) -> Any:
    """Create an actor. Its name may still be that of one whose driver was killed a moment ago: a ValueError of Ray."""
    named = ray.remote(kind).options(name=name, namespace=run_id, max_restarts=-1, max_task_retries=0, **options)
    return named.remote(**arguments)
