"""The driver's part of a run's story: begun or gone on with, and how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.run.directory import Run
from tasks.run.events import read_events, record
from tasks.run.ledger import committed_steps


@contextmanager
def story(run: Run) -> Iterator[None]:
    """Note the beginning and the end of a driver's work on a run, with the error that ended it."""
    again = any(event["event"] == "started" for event in read_events(run.events))
    done = max(committed_steps(run), default=None)
    record(run.events, "resumed" if again else "started", after_step=done)
    try:
        yield
    except Exception as error:
        record(run.events, "failed", error=f"{type(error).__name__}: {error}")
        raise
    except BaseException as stop:
        record(run.events, "interrupted", by=type(stop).__name__)
        raise
    record(run.events, "finished")
