"""Tasks on real Ray workers under a real Prefect server: one that dies is run again, and its dead run is closed."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.exceptions import TerminationSignal

from configs.errors import UserError
from configs.schema import Recipe
from tasks.orchestrator.dispatch import stage, submit
from tasks.orchestrator.task_runner import ray_task_runner
from tasks.run.directory import Run
from tasks.run.events import read_events

pytestmark = pytest.mark.usefixtures("prefect_server", "ray_cluster")


RUN = Run(Path(tempfile.gettempdir()) / "rl-post-dispatch", Recipe(name="r"))


def attempts(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def note(log: Path) -> int:
    """Append a line, and return how many there are."""
    with log.open("a") as file:
        file.write("attempt\n")
    return attempts(log)


@stage(name="die at first", run_name="die at first", limit=lambda limits: 60.0)
def die_at_first(run: Run, log: Path) -> str:
    if note(log) == 1:
        time.sleep(2)  # Long enough for the server to know the task run as Running.
        os._exit(1)
    return "survived"


@stage(name="raise a user error", run_name="raise a user error", limit=lambda limits: 60.0)
def raise_user_error(run: Run, log: Path) -> None:
    note(log)
    raise UserError("no such column")


@stage(name="die always", run_name="die always", limit=lambda limits: 60.0)
def die_always(run: Run, log: Path) -> None:
    note(log)
    os._exit(1)


@stage(name="follow", run_name="follow", limit=lambda limits: 60.0)
def follow(run: Run, log: Path, before: list[str]) -> str:
    note(log)
    return f"{before[0]} and followed"


@stage(name="take too long", run_name="take too long", limit=lambda limits: 3.0)
def take_too_long_at_first(run: Run, log: Path) -> str:
    if note(log) == 1:
        time.sleep(60)
    return "in time"


def states(flow_run_id: UUID, count: int) -> list[str]:
    """Return the states in which so many task runs ended. The server records an end a moment after it."""
    own = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    deadline = time.monotonic() + 30
    while True:
        with get_client(sync_client=True) as client:
            runs = client.read_task_runs(flow_run_filter=own)
        ended = len(runs) >= count and all(run.state and run.state.is_final() for run in runs)
        if ended or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return sorted(f"{run.name} {run.state_name}" for run in runs)


def run_flow(body: Callable[[], object]) -> tuple[object, UUID]:
    from prefect.runtime import flow_run

    ids = []

    @flow(task_runner=ray_task_runner(), name="dispatch test")
    def outer() -> object:
        ids.append(UUID(flow_run.id))
        return body()

    return outer(), ids[0]


def test_a_task_whose_worker_dies_is_submitted_again_and_its_dead_run_is_closed(tmp_path: Path) -> None:
    result, flow_run_id = run_flow(lambda: submit(die_at_first, run=RUN, log=tmp_path / "log").result())

    assert result == "survived"
    assert attempts(tmp_path / "log") == 2
    assert states(flow_run_id, 2) == ["die at first Completed", "die at first Crashed"]


def test_a_task_that_waited_for_one_that_died_runs_once_with_the_second_result(tmp_path: Path) -> None:
    def body() -> str:
        before = submit(die_at_first, run=RUN, log=tmp_path / "first")
        return submit(follow, run=RUN, log=tmp_path / "second", before=[before]).result()

    result, _ = run_flow(body)

    assert result == "survived and followed"
    assert attempts(tmp_path / "second") == 1


def test_a_worker_that_always_dies_fails_the_flow_after_a_bounded_number_of_attempts(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"(?i)crash|died|worker"):
        run_flow(lambda: submit(die_always, run=RUN, log=tmp_path / "log").result())

    assert attempts(tmp_path / "log") == 4


def test_a_users_mistake_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such column"):
        run_flow(lambda: submit(raise_user_error, run=RUN, log=tmp_path / "log").result())

    assert attempts(tmp_path / "log") == 1


def test_u33_a_task_that_runs_into_its_limit_is_tried_again_and_is_in_the_events_once_as_that(tmp_path: Path) -> None:
    run = Run(tmp_path, Recipe(name="r"))

    result, _ = run_flow(lambda: submit(take_too_long_at_first, run=run, log=tmp_path / "log").result())

    assert result == "in time"
    assert [(event["event"], event["why"]) for event in read_events(run.events)] == [
        ("time limit", "no end after 3 s"),
    ]


@pytest.fixture
def told_to_stop() -> Iterator[list[int]]:
    """The signals that reach this process once a flow has ended, in place of the end of the process."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    yield signals
    signal.signal(signal.SIGTERM, before)


@stage(name="take long", run_name="take long", limit=lambda limits: 120.0)
def take_long(run: Run, log: Path) -> None:
    note(log)
    time.sleep(60)
    note(log)


def test_a_flow_that_is_told_to_stop_does_not_wait_for_the_end_of_a_task(tmp_path: Path, told_to_stop: list[int]):
    def body() -> None:
        task = submit(take_long, run=RUN, log=tmp_path / "log")
        threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        task.result()

    with pytest.raises(TerminationSignal):
        run_flow(body)

    assert attempts(tmp_path / "log") <= 1
    assert told_to_stop == [signal.SIGTERM]


def test_a_flow_hears_that_it_was_told_to_stop_though_a_library_took_that_for_an_error(
    tmp_path: Path, told_to_stop: list[int]
):
    went_on = []

    def body() -> None:
        with suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)
        went_on.append("so far")
        submit(follow, run=RUN, log=tmp_path / "log", before=["nothing"]).result()
        went_on.append("beyond the next task")

    with pytest.raises(TerminationSignal):
        run_flow(body)

    assert went_on == ["so far"]
    assert told_to_stop == [signal.SIGTERM]
