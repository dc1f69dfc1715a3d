"""Processes that a test starts, and all that these start, told by a mark in their environment."""

import os
from pathlib import Path
from uuid import uuid4

import psutil

MARK = "RL_POST_TEST"


class Marked:
    """An environment with runs and Prefect's data in `home`, and the processes that were started with it."""

    def __init__(self, home: Path) -> None:
        self._mark = uuid4().hex
        outside = {
            name: value for name, value in os.environ.items() if name not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
        }
        own = {"RL_POST_HOME": str(home), "PREFECT_HOME": str(home / "prefect"), MARK: self._mark}
        self.environment = outside | own

    def processes(self) -> list[psutil.Process]:
        """Return those that still run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found
