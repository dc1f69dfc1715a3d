"""The named actors that hold a run's long-lived state, and calls to them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from tasks.cluster.placement import actor_name
from tasks.processes.reservation import Seats
from tasks.run.directory import Run

NO_SEATS: Seats = {}
ActorSpec = tuple[type, dict[str, Any], dict[str, Any]]
"""An actor's class, its arguments, and Ray's options: resources and environment."""


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

    Ray itself would wait for ever, and a task's own time limit can't end a wait inside Ray. If an actor is being
    restarted, the call waits for it.

    Raises:
        ActorHangs: an actor did not answer within `timeout` seconds.
        RayError: an actor died, or the method raised.
    """
    _wait_until_started(actors, timeout)
    return _answers(actors, method, arguments, timeout)


@contextmanager
def actors(run: Run, specs: Mapping[str, ActorSpec], seats: Seats = NO_SEATS) -> Iterator[None]:
    """Keep a run's named actors within the block. End them and their processes however the block ends.

    Ray restarts an actor that dies. It comes back empty: the task that needs it next brings it up to date.

    Args:
        run: The run; its id is Ray's namespace for the names.
        specs: By actor name.
        seats: By actor name: its reserved place, if it has one.
    """
    timeouts = run.recipe.timeouts
    # Ray raises ValueError while the actors of a driver that was just killed still hold their names.
    create = retry(
        retry=retry_if_exception_type(ValueError),
        wait=wait_fixed(1.0),
        stop=stop_after_delay(timeouts.answer),
        reraise=True,
    )(_create)
    handles = []
    for name, (kind, arguments, options) in specs.items():
        seat = {"scheduling_strategy": seats[name]} if name in seats else {}
        handles.append(create(run.id, name, kind, arguments, options | seat))
    try:
        yield
    finally:
        # Ray's own wait hears no signal.
        wait([handle.stop.remote().future() for handle in handles], timeout=timeouts.stop)
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


def _create(run_id: str, name: str, kind: type, arguments: dict[str, Any], options: dict[str, Any]) -> Any:
    named = ray.remote(kind).options(name=name, namespace=run_id, max_restarts=-1, max_task_retries=0, **options)
    return named.remote(**arguments)
