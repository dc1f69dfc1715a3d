"""Trains with the real flow, disturbs it once, and looks at what came of it.

Prefect's server, Ray and a driver's process stay up from one training run to the next; the runs share a home, so that
the model and the cold start are made once. Only the engine is a fake, and not always.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, Self
from unittest.mock import patch
from uuid import uuid4

from prefect.settings import get_current_settings

from flows.health import wait_until_healthy
from flows.temporary_server import prefect_server
from tasks.processes.network import LOOPBACK, reserved_port
from tasks.run.directory import Run
from tasks.run.events import Event, read_events
from tasks.run.ledger import committed_steps, open_run
from tests.faults.door import Door
from tests.faults.faults import IN_DRIVER, Fault, is_running, strike
from tests.faults.results import Result, mlflow_run, result_of
from tests.integration.processes import Marked
from trainer.files import read_json

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake"
STARTUP = Path(__file__).parent / "startup"
STEPS = 3
RECIPE = [
    f"steps={STEPS}",
    "cold_start.steps=5",
    "data.eval_size=8",
    "evaluation.every=3",
    "learner.checkpoint_every=2",
    "tracking.table_every=2",
    "timeouts.request=30",
]
FAKE_RECIPE = ["timeouts.hang=4"]
PATIENCE = 400.0  # Seconds that a training run may take, whatever happens to it.


@dataclass(frozen=True)
class Outcome:
    """A disturbed run.

    Attributes:
        struck: when the faults happened, in seconds since 1970; fewer than there are if the run was over before.
        recovery: how it went on.
        seconds: that all took.
        events: what the run's story says, in order.
    """

    run: Run
    result: Result
    struck: tuple[float, ...]
    recovery: str
    seconds: float
    events: list[Event]


class Harness:
    """A home for training runs and the services that they need, for the length of a `with` block.

    Args:
        home: An empty folder.
        fake: Whether the engine is a fake.
        settings: Of the recipe, beyond RECIPE.
        nodes: Ray nodes beside the driver's own; 0 means that one alone.
    """

    def __init__(self, home: Path, fake: bool = True, settings: Sequence[str] = (), nodes: int = 0) -> None:
        self._home, self._fake, self._nodes = home, fake, nodes
        self._overrides = [*RECIPE, *(FAKE_RECIPE if fake else []), *settings]
        self._marked = Marked(home)
        self._driver: subprocess.Popen[str] | None = None
        self._mlflow: subprocess.Popen[bytes] | None = None
        self._doors: dict[str, Door] = {}
        self._troubles: list[threading.Timer] = []
        self._services = ExitStack()

    def __enter__(self) -> Self:
        own = {name: self._marked.environment[name] for name in ("RL_POST_HOME", "PREFECT_HOME")}
        self._services.enter_context(patch.dict(os.environ, own))
        self._services.enter_context(prefect_server())
        url = str(get_current_settings().api.url)
        self._doors["prefect away"] = Door(int(url.rsplit(":", 1)[1].split("/")[0]))
        # Ray tells all of a machine where its latest cluster is, by a file in its folder: these runs have a folder of
        # their own, with a short name, for sockets lie in it.
        folder = self._services.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        self._marked.environment["RAY_TMPDIR"] = folder
        return self

    def __exit__(self, *error: Any) -> None:
        self._end_driver()
        if self._mlflow:
            self._mlflow.terminate()
            self._mlflow.wait()
        self._services.close()

    def train(self, *faults: Fault) -> Outcome:
        """Train once, disturbed by the faults in their order; where the run can't go on by itself, resume it."""
        self._ensure_driver()
        known = set(self._roots())
        overrides = list(self._overrides)
        if any(fault.kind == "mlflow away" for fault in faults):
            overrides.append(f"tracking.uri=http://{LOOPBACK}:{self._mlflow_door().port}")
        dies = next(((fault.stage, fault.step) for fault in faults if fault.stage in IN_DRIVER), ("", 0))
        began = time.monotonic()
        answer = self._call(parameters={"recipe": "quickstart", "overrides": overrides}, dies=dies)
        root = self._wait(lambda: next(iter(set(self._roots()) - known), None), answer)
        assert root, f"no run was begun: {self._why(answer)}"
        struck, recovery = [], []

        def go_on(answer: Path) -> Path:
            by_prefect = any(fault.by_prefect for fault in faults)
            recovery.append(f"{'run again by Prefect' if by_prefect else 'resumed'} after: {self._why(answer)}")
            assert len(recovery) <= len(faults), f"{root}: {recovery}"
            self._await_end_of_troubles()  # as a user does, who reads the error
            self._ensure_driver()
            return self._resume(root, by_prefect)

        for fault in faults:
            while not self._has_come(fault, root, answer) and not self._ended_well(answer):
                answer = go_on(answer)
            now = time.time()
            if self._do(fault, answer):
                struck.append(now)
        while not self._ended_well(answer):
            answer = go_on(answer)
        seconds = time.monotonic() - began
        self._await_end_of_troubles()
        run = open_run(self._home, root.name)
        if any(fault.kind == "mlflow away" for fault in faults) and self._is_behind(run):
            # It was away until after the end: the rest goes with the next resume.
            answer = self._resume(root)
            assert self._ended_well(answer), f"{root}: {self._why(answer)}"
            recovery.append("MLflow was behind; sent by a resume")
        told = "; ".join(recovery) or "by itself"
        return Outcome(run, result_of(run), tuple(struck), told, seconds, read_events(run.events))

    def forget(self, cache: str) -> None:
        """Have the next run make again what the runs share: `datasets` or `cold-start`."""
        rmtree(self._home / "cache" / cache)

    def _has_come(self, fault: Fault, root: Path, answer: Path) -> bool:
        """Wait for the moment of a fault. False if the run ends before."""
        if fault.stage in IN_DRIVER:
            return True  # The driver knows, and does it.
        file = root / "steps" / f"{fault.step:06d}" / fault.file
        home = str(self._home)
        come = self._wait(lambda: is_running(fault.stage, home) if fault.stage else file.exists(), answer)
        time.sleep(fault.delay if come else 0.0)
        return come

    def _do(self, fault: Fault, answer: Path) -> bool:
        """Have a fault happen. False if the run was over before."""
        if answer.exists():
            return False
        if fault.stage in IN_DRIVER:
            self._wait(lambda: False, answer)
            return not answer.exists()
        if fault.length:
            self._begin_trouble(fault.kind, fault.length)
        elif fault.kind == "driver":
            assert self._driver
            self._driver.kill()
            self._driver.wait()
        else:
            return bool(self._wait(lambda: strike(fault.kind, self._marked.processes()), answer))
        return True

    def _begin_trouble(self, kind: str, seconds: float) -> None:
        """Shut a door, or put the disk in trouble (`startup/sitecustomize.py`), for a while."""
        door, disk = self._doors.get(kind), self._home / kind
        door.shut() if door else disk.touch()
        end = threading.Timer(seconds, door.open if door else disk.unlink)
        end.start()
        self._troubles.append(end)

    def _await_end_of_troubles(self) -> None:
        while self._troubles:
            self._troubles.pop().join()

    def _wait(self, what: Callable[[], Any], answer: Path) -> Any:
        """Return the first true value, or a false one if the run is over."""
        deadline = time.monotonic() + PATIENCE
        while not (value := what()) and not answer.exists() and self._alive():
            assert time.monotonic() < deadline, f"nothing within {PATIENCE:g} s"
            time.sleep(0.02)
        return value

    def _ended_well(self, answer: Path) -> bool:
        self._wait(answer.exists, answer)
        return answer.exists() and "outcome" in read_json(answer)

    def _why(self, answer: Path) -> str:
        # Paths under the home: where that was says nothing, and is in reports that are kept.
        error = read_json(answer)["error"].replace(f"{self._home}/", "") if answer.exists() else ""
        return error or "the driver was killed"

    def _is_behind(self, run: Run) -> bool:
        sent = mlflow_run(run)[1].data.tags.get("rl_post.committed", "-1")
        return int(sent) < max(committed_steps(run))

    def _roots(self) -> list[Path]:
        return [path.parent for path in (self._home / "runs").glob("*/run.json")]

    def _resume(self, root: Path, by_prefect: bool = False) -> Path:
        if by_prefect:
            return self._call(flow_run=read_json(root / "run.json")["flow_run"])
        return self._call(parameters={"resume": root.name})

    def _call(self, **what: Any) -> Path:
        """Tell the driver to run the flow; its answer will be in the file that is returned."""
        assert self._driver and self._driver.stdin
        answer = self._home / "answers" / f"{uuid4().hex}.json"
        answer.parent.mkdir(exist_ok=True)
        self._driver.stdin.write(json.dumps({**what, "answer": str(answer)}) + "\n")
        self._driver.stdin.flush()
        return answer

    def _alive(self) -> bool:
        return self._driver is not None and self._driver.poll() is None

    def _ensure_driver(self) -> None:
        """Start a driver if there is none that lives, once what the last one left has gone."""
        if self._alive():
            return
        _wait_until(lambda: not self._marked.processes(), "what the driver started ends with it")
        environment = self._marked.environment | {
            "PREFECT_API_URL": f"http://{LOOPBACK}:{self._doors['prefect away'].port}/api",
            "PREFECT_LOGGING_LEVEL": "WARNING",
            "PYTHONPATH": os.pathsep.join(map(str, [*([FAKE] if self._fake else []), STARTUP, ROOT])),
        }
        with (self._home / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.driver", *([str(self._nodes)] if self._nodes else [])],
                cwd=self._home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._driver.stdout and self._driver.stdout.readline() == "ready\n", f"see {self._home / 'driver.log'}"

    def _end_driver(self) -> None:
        if self._driver and self._driver.stdin:
            with suppress(BrokenPipeError):
                self._driver.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._driver.wait(60)
            self._driver.kill()
        _wait_until(lambda: not self._marked.processes(), "nothing is left of the runs")

    def _mlflow_door(self) -> Door:
        """Return the door to an MLflow server, which is started at the first call."""
        if "mlflow away" not in self._doors:
            with reserved_port() as port, (self._home / "mlflow.log").open("wb") as log:
                store = f"sqlite:///{self._home / 'mlflow-server.db'}"
                files = str(self._home / "mlflow-server")
                command = ["server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"]
                command += ["--backend-store-uri", store, "--artifacts-destination", files]
                self._mlflow = subprocess.Popen([sys.executable, "-m", "mlflow", *command], stdout=log, stderr=log)
                health = f"http://{LOOPBACK}:{port}/health"
                wait_until_healthy("MLflow", health, self._mlflow, self._home / "mlflow.log")
            self._doors["mlflow away"] = Door(port)
        return self._doors["mlflow away"]


def _wait_until(what: Callable[[], bool], expected: str) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, f"not so within 60 s: {expected}"
        time.sleep(0.1)
