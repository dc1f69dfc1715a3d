"""U33: a task that ran into its time limit is in the run's events, once and as that. Prefect's own alarm rings here."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.task_engine import TaskRunTimeoutError
from prefect.utilities.timeout import timeout

from configs.loader import load_recipe
from tasks.orchestrator.dispatch import Stage, stage
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.run.ledger import create_run

LIMIT = 0.2


def work(body: Callable[[], None]) -> Stage[None]:
    @stage(name="work", run_name="work on {part}", limit=lambda limits: LIMIT)
    def working(run: Run, part: int) -> None:
        body()

    return working


def told(tmp_path: Path, body: Callable[[], None]) -> list[tuple[str, str, str]]:
    """Run a stage's body under its limit, as Prefect does, and return the events."""
    run = create_run(tmp_path, load_recipe("r1"))
    with pytest.raises(Exception), timeout(LIMIT, TaskRunTimeoutError):  # noqa: B017
        work(body).fn(run, part=3)
    return [(event["event"], event["task"], event["why"]) for event in read_events(run.events)]


def sleep() -> None:
    time.sleep(5)


def answer_with_an_error_of_its_own() -> None:
    try:
        time.sleep(5)
    except BaseException as error:
        raise RuntimeError("the engine did not answer") from error


def fail_while_cleaning_up() -> None:
    try:
        time.sleep(5)
    finally:
        raise ConnectionError("no server to tell")


def hide_where_it_comes_from() -> None:
    try:
        time.sleep(5)
    except BaseException:
        raise RuntimeError("cut off") from None


@pytest.mark.parametrize(
    "body", [sleep, answer_with_an_error_of_its_own, fail_while_cleaning_up, hide_where_it_comes_from]
)
def test_u33_a_time_limit_is_told_once_whatever_the_work_makes_of_it(tmp_path: Path, body: Callable[[], None]) -> None:
    assert told(tmp_path, body) == [("time limit", "work on 3", "no end after 0.2 s")]


def raise_at_once() -> None:
    raise ValueError("no such thing")


def raise_another_limit() -> None:
    raise TimeoutError("the socket")


@pytest.mark.parametrize(
    ("body", "why"),
    [(raise_at_once, "ValueError: no such thing"), (raise_another_limit, "TimeoutError: the socket")],
)
def test_u33_an_ordinary_error_is_none(tmp_path: Path, body: Callable[[], None], why: str) -> None:
    assert told(tmp_path, body) == [("task failed", "work on 3", why)]


def test_what_ends_the_process_is_no_event(tmp_path: Path) -> None:
    run = create_run(tmp_path, load_recipe("r1"))

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(stop).fn(run, part=3)

    assert read_events(run.events) == []
