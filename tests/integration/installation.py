"""A long-lived installation in a folder of its own: what `rl-post up` starts, and what a test does to it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from tasks.run.directory import services_in
from tests.integration.processes import Marked
from trainer.files import read_json, write_json

BIN = Path(sys.executable).parent


class Installation:
    """Commands in a folder of their own, and the processes that they leave."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self.home = folder, folder / "home"
        self.marked = Marked(self.home)
        self.variables = variables
        self.printed = ""

    def call(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [BIN / program, *arguments],
            cwd=self.folder,
            env=self.marked.environment | {"COLUMNS": "200"} | self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def addresses(self) -> dict[str, str]:
        """Return what `rl-post up` printed: where the servers are."""
        return dict(
            line.split(maxsplit=1) for line in self.printed.splitlines() if line.startswith(("Prefect", "MLflow"))
        )

    @contextmanager
    def away(self, name: str) -> Iterator[None]:
        """Kill a server, `prefect-server` or `mlflow-server`, and start it again after the block."""
        record = services_in(self.home) / "started.json"
        server = psutil.Process(read_json(record)[name]["pid"])
        command, folder, environment = server.cmdline(), server.cwd(), server.environ()
        os.killpg(server.pid, signal.SIGKILL)
        psutil.wait_procs([server], timeout=30)
        try:
            yield
        finally:
            with (services_in(self.home) / f"{name}.log").open("ab") as log:
                again = subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            threading.Thread(target=again.wait, daemon=True).start()  # else what ends it would wait for a zombie
            started = {"pid": again.pid, "created": psutil.Process(again.pid).create_time()}
            write_json(record, {**read_json(record), name: started})

    def begin(self, deployment: str, **parameters: Any) -> str:
        """Have a deployment run, and return the id of the flow run."""
        (known,) = self.ask("deployments/filter", {"deployments": {"name": {"any_": [deployment]}}})
        return self.ask(f"deployments/{known['id']}/create_flow_run", {"parameters": parameters})["id"]

    def end_of(self, flow_run: str, seconds: float) -> str:
        """Wait until a flow run has ended, while the server may be away, and return its state."""
        deadline = time.monotonic() + seconds
        state = "unknown"
        while time.monotonic() < deadline:
            try:
                (found,) = self.ask("flow_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})
            except httpx.HTTPError:
                found = {"state_name": state, "state_type": "UNKNOWN"}
            state = found["state_name"]
            if found["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                break
            time.sleep(1)
        return state

    def ask(self, path: str, what: dict[str, Any]) -> Any:
        """Post a request to Prefect's server."""
        answer = httpx.post(f"{self.addresses()['Prefect']}/api/{path}", json=what, timeout=30)
        return answer.raise_for_status().json()
