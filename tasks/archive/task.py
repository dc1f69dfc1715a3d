"""The archive's task, and when it runs: beside the training, which never waits for it."""

import logging

from tasks.archive.store import copy_run
from tasks.orchestrator.dispatch import Call, stage, submit
from tasks.run.directory import Run
from tasks.run.events import record
from tasks.run.ledger import Receipt

logger = logging.getLogger(__name__)


@stage(name="archive run", run_name="archive run", limit=lambda limits: limits.archive)
def archive_run(run: Run) -> Receipt:
    """Bring the run's copy up to the last committed step; see `tasks.archive.store.copy_run`."""
    assert run.recipe.archive
    return copy_run(run, run.recipe.archive)


class Archive:
    """A run's copy, one task at a time: while one is on its way, the next waits and takes all that is new by then."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._call: Call[Receipt] | None = None
        self.state = ""

    def follow(self) -> None:
        """Begin to copy what is committed, if the recipe says where to and nothing is on its way."""
        if self._run.recipe.archive and (self._call is None or self._call.done()):
            self._settle()
            self._call = submit(archive_run, run=self._run)

    def finish(self) -> None:
        """Wait until everything that is committed is copied, or can't be."""
        if self._run.recipe.archive:
            self._settle()
            self._call = submit(archive_run, run=self._run)
            self._settle()

    def _settle(self) -> None:
        """Wait for the task, and say how it went. A store that fails stops no training: the next step tries again."""
        if self._call is None:
            return
        try:
            copied = self._call.result()
            self.state = f"{copied['address']} as of step {copied['step']}"
        except Exception as error:
            self.state = f"behind: {type(error).__name__}: {error}"
            logger.warning("archive %s. Training goes on; the next step tries again.", self.state)
            record(self._run.events, "archive behind", why=str(error)[:1000])
        self._call = None
