"""The events of a run. The process that sees one appends it as a line of JSON.

They are the run's story for a reader (`rl-post show`). No result depends on them, so a failed write is only logged.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from configs.addresses import without_user
from tasks.run.directory import Run
from tasks.run.ledger import committed_steps

logger = logging.getLogger(__name__)
Event = dict[str, Any]
Kind = Literal[
    "started",
    "resumed",
    "changed",
    "finished",
    "failed",
    "interrupted",
    "lock taken over",
    "task failed",
    "time limit",
    "worker lost",
    "engine started",
    "engine lost",
    "weights not sent",
    "learner rebuilt",
    "step without signal",
    "evaluation without score",
    "samples given up",
    "samples discarded",
    "archive behind",
]


def record(path: Path, event: Kind, **facts: Any) -> None:
    """Append an event with the time of day (UTC) and what else is known about it.

    The line is written by one call in append mode, so that the lines of several processes do not mix. Addresses lose
    user and password: an error may quote one.

    Args:
        path: The run's file of events.
        event: What happened.
        **facts: JSON-like values.
    """
    line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **facts})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, f"{without_user(line)}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning("%s: can't note that %s: %s", path, event, error.strerror)


def read_events(path: Path) -> list[Event]:
    """Return the events in the order in which they were written. A line that a crash cut short is passed over."""
    events = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            event = json.loads(line)
            if isinstance(event, dict) and event.keys() >= {"time", "event"}:
                events.append(event)
                continue
        logger.warning("%s: passed over a damaged line: %.80s", path, line)
    return events


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
