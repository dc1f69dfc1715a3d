"""Trains with the real flow, disturbs it once, and looks at what came of it.

Prefect's server, Ray and a driver's process stay up from one training run to the next; the runs share a home, so that
the model and the cold start are made once. Only the engine is a fake, and not always.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch
from uuid import uuid4

import mlflow
from prefect.settings import get_current_settings

from flows.health import wait_until_healthy
from flows.temporary_server import prefect_server
from tasks.rollout.samples import read_samples
from tasks.runtime.events import read_events
from tasks.runtime.files import read_json, sha256
from tasks.runtime.ledger import Run, committed_steps, open_run
from tasks.runtime.ports import LOOPBACK, reserved_port
from tasks.runtime.verify import verify
from tests.faults.door import Door
from tests.faults.faults import STRIKES, Fault, strike
from tests.integration.processes import Marked

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake"
STEPS = 3
RECIPE = [
    f"steps={STEPS}",
    "cold_start.steps=5",
    "data.eval_size=8",
    "evaluation.every=3",
    "learner.checkpoint_every=2",
    "tracking.table_every=2",
    "engine.request_timeout=30",
]
FAKE_RECIPE = ["engine.hang_timeout=4"]
PATIENCE = 400.0  # Seconds that a training run may take, whatever happens to it.
MEASURED = ("reward/", "rollout/", "policy/", "eval/", "cold_start/")
"""Metrics that are the same in every run of a recipe; the others are times and sizes."""


@dataclass(frozen=True)
class Result:
    """What a training run left: everything that must not depend on what happened meanwhile."""

    weights: str
    samples: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    history: dict[str, list[tuple[int, float]]]
    status: str
    problems: list[str]


@dataclass(frozen=True)
class Outcome:
    """A disturbed run: its result, whether the fault happened at all, how it went on, and how long all took."""

    result: Result
    struck: bool
    recovery: str
    seconds: float
    events: list[str]


class Harness:
    """A home for training runs and the services that they need, for the length of a `with` block."""

    def __init__(self, home: Path, fake: bool = True) -> None:
        self._home, self._fake = home, fake
        self._marked = Marked(home)
        self._driver: subprocess.Popen[str] | None = None
        self._mlflow: subprocess.Popen[bytes] | None = None
        self._doors: dict[str, Door] = {}
        self._services = ExitStack()

    def __enter__(self) -> Self:
        own = {name: self._marked.environment[name] for name in ("RL_POST_HOME", "PREFECT_HOME")}
        self._services.enter_context(patch.dict(os.environ, own))
        self._services.enter_context(prefect_server())
        url = str(get_current_settings().api.url)
        self._doors["prefect away"] = Door(int(url.rsplit(":", 1)[1].split("/")[0]))
        return self

    def __exit__(self, *error: Any) -> None:
        self._end_driver()
        if self._mlflow:
            self._mlflow.terminate()
            self._mlflow.wait()
        self._services.close()

    def train(self, fault: Fault | None = None) -> Outcome:
        """Train once; if the run can't go on by itself, resume it, as a user would."""
        self._ensure_driver()
        known = set(self._roots())
        overrides = [*RECIPE, *(FAKE_RECIPE if self._fake else [])]
        if fault and fault.kind == "mlflow away":
            overrides.append(f"tracking.uri=http://{LOOPBACK}:{self._mlflow_door().port}")
        began = time.monotonic()
        answer = self._call(parameters={"recipe": "quickstart", "overrides": overrides})
        root = self._wait(lambda: next(iter(set(self._roots()) - known), None), answer)
        assert root, f"no run was begun: {answer.read_text()}"
        struck = bool(fault) and self._disturb(fault, root, answer)
        recovery = "by itself"
        if not self._ended_well(answer):
            way = "run again by Prefect" if fault and fault.by_prefect else "resumed"
            recovery = f"{way} after: {self._why(answer)}"
            self._ensure_driver()
            answer = self._resume(root, by_prefect=way != "resumed")
            assert self._ended_well(answer), f"{root}: {self._why(answer)}"
        seconds = time.monotonic() - began
        run = open_run(self._home, root.name)
        if struck and fault and fault.kind == "mlflow away" and self._is_behind(run):
            # It was away until after the end: the rest goes with the next resume.
            answer = self._resume(root)
            assert self._ended_well(answer), f"{root}: {self._why(answer)}"
            recovery = "MLflow was behind; sent by a resume"
        return Outcome(result_of(run), struck, recovery, seconds, told(run))

    def _disturb(self, fault: Fault, root: Path, answer: Path) -> bool:
        """Wait for the moment and do it. False if the run was over before."""
        target = root / "steps" / f"{fault.step:06d}" / fault.file
        self._wait(target.exists, answer)
        time.sleep(fault.delay)
        if answer.exists():
            return False
        if fault.kind in self._doors:
            with self._shut(self._doors[fault.kind]):
                time.sleep(fault.length)
            return True
        if fault.kind == "driver":
            assert self._driver
            self._driver.kill()
            return True
        return bool(self._wait(lambda: strike(STRIKES[fault.kind], self._marked.processes()), answer))

    @contextmanager
    def _shut(self, door: Door) -> Iterator[None]:
        door.shut()
        try:
            yield
        finally:
            door.open()

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
        return read_json(answer)["error"] if answer.exists() else "the driver was killed"

    def _is_behind(self, run: Run) -> bool:
        sent = _mlflow_run(run)[1].data.tags.get("rl_post.committed", "-1")
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
            "PYTHONPATH": os.pathsep.join([*([str(FAKE)] if self._fake else []), str(ROOT)]),
        }
        with (self._home / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.driver"],
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


def result_of(run: Run) -> Result:
    """Read what a run left, from its directory and MLflow."""
    steps = committed_steps(run)
    client, found = _mlflow_run(run)
    history = {
        name: [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]
        for name in sorted(found.data.metrics)
        if name.startswith(MEASURED)
    }
    return Result(
        sha256(run.weights(steps[-1]) / "model.safetensors"),
        [row for step in steps for row in read_samples(sorted(run.step_file(step, "").glob("scored-*.parquet")))],
        [row for step in steps for row in read_samples(sorted(run.step_file(step, "").glob("eval-*.parquet")))],
        history,
        found.info.status,
        verify(run),
    )


def told(run: Run) -> list[str]:
    """Return the kinds of a run's events, in order."""
    return [event["event"] for event in read_events(run.events)]


def _mlflow_run(run: Run) -> tuple[mlflow.MlflowClient, Any]:
    """Return the one MLflow run of a training run."""
    client = mlflow.MlflowClient(run.recipe.tracking.uri or f"sqlite:///{run.home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(run.recipe.tracking.experiment)
    assert experiment
    (found,) = client.search_runs([experiment.experiment_id], f"tags.`rl_post.run` = '{run.id}'")
    return client, found


def _wait_until(what: Callable[[], bool], expected: str) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, f"not so within 60 s: {expected}"
        time.sleep(0.1)


def differences(expected: Result, actual: Result) -> list[str]:
    """Name the parts in which two results differ."""
    return [name for name in Result.__dataclass_fields__ if getattr(expected, name) != getattr(actual, name)]
