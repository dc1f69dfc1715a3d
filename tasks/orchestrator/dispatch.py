"""Prefect tasks on Ray workers, submitted again when a worker dies.

Prefect retries a task that raises, but not one whose Ray worker dies (killed, out of memory): its future says Crashed
and its task run stays Running on the server for ever. Ray's own retries would run the body again behind Prefect's
back, so they are off. Here, and only here, a crashed task run is closed and its task submitted again. A worker that
hangs, so that even the task's time limit can't end it, counts as dead. Tasks are idempotent: a second run finds
what the first one finished.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

import ray
from httpx import TransportError
from prefect import get_run_logger
from prefect._internal.concurrency.cancellation import CancelledError
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Crashed
from prefect.tasks import Task, exponential_backoff
from prefect.utilities.collections import visit_collection
from prefect_ray.context import remote_options
from prefect_ray.task_runners import PrefectRayFuture
from ray.exceptions import RayError, RayTaskError
from tenacity import (
    retry,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

from configs.errors import UserError
from tasks.cluster.capacity import TASK_CPUS
from tasks.cluster.limits import Limits, limits_of
from tasks.run.directory import Run
from tasks.run.events import Kind, record

logger = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")
INPUT_LOST = "Input lost"  # The state of a task that could not begin, because one before it lost its worker.
RETRIES = 3
MAX_CRASHES = 3


@dataclass(frozen=True)
class Stage(Generic[T]):
    """A stage of a run as a Prefect task.

    Attributes:
        task: the task; its first parameter is the run.
        limit: which of a run's limits ends an attempt.
    """

    task: Task[..., T]
    limit: Callable[[Limits], float]

    @property
    def fn(self) -> Callable[..., T]:
        """The stage as a plain function."""
        return self.task.fn


def stage(
    *, name: str, run_name: str, limit: Callable[[Limits], float]
) -> Callable[[Callable[Concatenate[Run, P], T]], Stage[T]]:
    """Return the decorator of a stage: three retries after 2, 4 and 8 s with jitter, no result cache.

    A `UserError` is not retried. The tags are `rl-post` and the stage's folder, e.g. `rollout`. Prefect asks its server
    for a concurrency slot for every task run that has tags before it begins: it would wait for a server that is away,
    and otherwise pay a fifth of a step of the tiny policy. So a run gets its tags when its slot would have been taken,
    and its page shows them once it has ended.

    Args:
        name: The task's name in Prefect.
        run_name: Template of the run's name over the task's parameters, e.g. `rollout step {step}`.
        limit: Which of a run's limits ends an attempt.
    """

    def decorate(body: Callable[Concatenate[Run, P], T]) -> Stage[T]:
        task = Task(
            _noted(body, run_name, limit, tags=["rl-post", body.__module__.split(".")[-2]]),
            name=name,
            task_run_name=run_name,
            retries=RETRIES,
            retry_delay_seconds=exponential_backoff(backoff_factor=2),
            retry_jitter_factor=0.5,
            retry_condition_fn=_may_pass,
            cache_policy=NO_CACHE,
            persist_result=False,
        )
        return Stage(task, limit)

    return decorate


class Call(Generic[T]):
    """A submitted task whose result survives the death of its worker, or of the worker of a task before it."""

    def __init__(self, stage: Stage[T], run: Run, parameters: dict[str, Any]) -> None:
        self._run, self._parameters = run, {"run": run, **parameters}
        self._limit = stage.limit(limits_of(run))
        self._task = stage.task.with_options(timeout_seconds=self._limit)
        self._result: T | None = None
        self._future = self._submit(lambda call: call._future)

    def result(self) -> T:
        """Wait for the result.

        Raises:
            Exception: what the task raised in its last retry, or what killed its worker for the last time.
        """
        if self._result is None:
            # The tasks before this one come first: one of them may have crashed, and time counts from their end.
            visit_collection(self._parameters, visit_fn=_wait_for, return_data=False)
            self._result = self._wait_for_own()
            self._parameters = {}  # else every step would keep all earlier steps in memory
        return self._result

    def done(self) -> bool:
        """Tell whether the task has ended, well or not."""
        return self._result is not None or bool(ray.wait([self._future.wrapped_future], timeout=0)[0])

    def _wait_for_own(self) -> T:
        for _ in range(MAX_CRASHES):
            crash = self._wait()
            if crash is None:
                break
            if crash.name != INPUT_LOST:
                get_run_logger().warning("%s lost its worker: %s", self._task.name, crash.message)
                _note(self._run, "worker lost", self._task.name, str(crash.message))
            _close(self._future.task_run_id, crash, self._run.recipe.timeouts.away)
            self._future = self._submit(lambda call: call.result())
        return cast(T, self._future.result())

    def _wait(self) -> State | None:
        """Wait for the end, and return the state if it is a crash.

        Prefect's own `wait` takes any exception for a crash of the task, even a signal that ends this flow. Ray's `get`
        hears only Ctrl-C until the task ends. So this waits for a Python future.
        """
        # Attempts run one after the other, and each may wait for a worker.
        limit = (RETRIES + 1) * self._limit + self._run.recipe.timeouts.answer
        try:
            state = cast(State, self._future.wrapped_future.future().result(timeout=limit))
        except RayTaskError as error:
            # If a worker dies, Ray fails the tasks that wait for its task with the same error.
            lost = isinstance(error.cause, RayError)
            return Crashed(name=INPUT_LOST if lost else "Crashed", message=str(error))
        except RayError as error:
            return Crashed(message=str(error))
        except TimeoutError:
            ray.cancel(self._future.wrapped_future, force=True)
            return Crashed(message=f"no end and no sign of it after {limit:g} s")
        return state if state.is_crashed() else None

    def _submit(self, resolve: "Callable[[Call[Any]], Any]") -> PrefectRayFuture[T]:
        def exchange(value: Any) -> Any:
            return resolve(value) if isinstance(value, Call) else value

        parameters = visit_collection(self._parameters, visit_fn=exchange, return_data=True)
        with remote_options(max_retries=0, num_cpus=TASK_CPUS):
            return cast(PrefectRayFuture[T], self._task.submit(**parameters))


def submit(stage: Stage[T], *, run: Run, **parameters: Any) -> Call[T]:
    """Submit a stage to Ray. A parameter may be the `Call` of an earlier stage, or a list of them."""
    return Call(stage, run, parameters)


def _noted(
    body: Callable[Concatenate[Run, P], T], run_name: str, limit: Callable[[Limits], float], tags: list[str]
) -> Callable[Concatenate[Run, P], T]:
    """Wrap a stage's body so that its task run gets tags, and the run's events record each failed attempt."""
    signature = inspect.signature(body)

    @wraps(body)
    def attempt(run: Run, *arguments: P.args, **named: P.kwargs) -> T:
        if context := TaskRunContext.get():
            context.task_run.tags = tags
        try:
            return body(run, *arguments, **named)
        except BaseException as error:
            parameters = signature.bind(run, *arguments, **named).arguments
            task = run_name.format(**parameters)
            if _ran_out_of_time(error):
                _note(run, "time limit", task, f"no end after {limit(limits_of(run)):g} s")
            elif isinstance(error, Exception):
                _note(run, "task failed", task, f"{type(error).__name__}: {error}")
            raise

    return attempt


def _ran_out_of_time(error: BaseException | None) -> bool:
    """Tell whether Prefect's alarm began it. What the alarm interrupts may answer with an error of its own."""
    seen: set[int] = set()
    while error and id(error) not in seen:
        if isinstance(error, CancelledError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _note(run: Run, event: Kind, task: str, why: str) -> None:
    record(run.events, event, task=task, why=why[:1000])


def _wait_for(value: Any) -> Any:
    if isinstance(value, Call):
        value.result()
    return value


def _may_pass(task: Task[..., Any], run: TaskRun, state: State) -> bool:
    """Tell whether a retry can help: not if the user has to correct something."""
    return not isinstance(state.result(raise_on_failure=False), UserError)


def _close(task_run_id: UUID, state: State, away: float) -> None:
    """Tell the server what the dead worker could not: its task run crashed.

    A worker reports its task run by events, which the server records a moment later, or never if it died at once. A
    server that is away for longer than `away` seconds is not told: nothing but its page depends on it.
    """
    known = retry(retry=retry_if_exception(_is_unknown), wait=wait_fixed(1.0), stop=stop_after_attempt(5), reraise=True)
    answered = retry(
        retry=retry_if_exception_type(TransportError),
        wait=wait_fixed(1.0),
        stop=stop_after_delay(away),
        reraise=True,
    )

    def tell() -> None:
        with get_client(sync_client=True) as client:
            known(client.set_task_run_state)(task_run_id, state, force=True)

    try:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            answered(tell)()
    except (PrefectHTTPStatusError, TransportError) as error:
        if not _is_unknown(error):
            logger.warning("Prefect's page goes on to show a task run that crashed as running: %s", error)


def _is_unknown(error: BaseException) -> bool:
    return isinstance(error, PrefectHTTPStatusError) and error.response.status_code == HTTPStatus.NOT_FOUND
