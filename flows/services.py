"""The services of a long-lived installation on one machine: Prefect server, MLflow server, work pool, worker.

Each runs in a session of its own, listens on loopback, and logs to `.rl-post/services/`. What was started is written
down, so that `down` ends exactly that. While they run, `prefect.toml` in the current folder tells Prefect's command
line where the server is.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed
from rich.console import Console

from configs.errors import UserError
from configs.timeouts import Timeouts
from flows.health import wait_until_healthy
from flows.temporary_server import SERVER_ENVIRONMENT
from tasks.run.directory import home, services_in, tracking_artifacts, tracking_database
from trainer.files import read_json, write_json

ROOT = Path(__file__).parents[1]
"""The checkout, or the folder that the packages are installed in."""
DEPLOYMENTS = Path(__file__).with_name("prefect.yaml")
POOL = "rl-post-local"
HOST = "127.0.0.1"
PREFECT_PORT, MLFLOW_PORT = 4200, 5000
ALIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
TIMEOUTS = Timeouts()
PREFECT_TOML = Path("prefect.toml")


def start_services(console: Console) -> None:
    """Start the services, wait until they answer, deploy the recipes, and say where everything is."""
    if _record().exists():
        raise UserError("services are recorded as started; `make down` ends them")
    _record().parent.mkdir(parents=True, exist_ok=True)
    prefect_port, mlflow_port = _free_port(PREFECT_PORT), _free_port(MLFLOW_PORT)
    api, mlflow = f"http://{HOST}:{prefect_port}/api", f"http://{HOST}:{mlflow_port}"
    environment = {
        **os.environ,
        "PREFECT_API_URL": api,
        **SERVER_ENVIRONMENT,
        "MLFLOW_TRACKING_URI": mlflow,
        "RL_POST_HOME": str(home()),
        "RL_POST_ROOT": str(ROOT),
    }
    try:
        with console.status("starting the Prefect server and the MLflow server"):
            prefect_command = _prefect("server", "start", "--host", HOST, "--port", str(prefect_port))
            prefect_server = _launch("prefect-server", prefect_command, environment)
            mlflow_server = _launch("mlflow-server", _mlflow(mlflow_port), environment)
            wait_until_healthy("the Prefect server", f"{api}/health", prefect_server, _log("prefect-server"))
            wait_until_healthy("the MLflow server", f"{mlflow}/health", mlflow_server, _log("mlflow-server"))
        with console.status("deploying"):
            _call(_prefect("work-pool", "create", POOL, "--type", "process", "--overwrite"), environment)
            names = [f"--name={name}" for name in _local_deployments()]
            _call(_prefect("--no-prompt", "deploy", f"--prefect-file={DEPLOYMENTS}", *names), environment)
            orphans = close_orphans(api, POOL)
            _launch("prefect-worker", _prefect("worker", "start", "--pool", POOL), environment)
    except BaseException:
        stop_services(console)
        raise
    PREFECT_TOML.write_text(f'# Written by `make up`, removed by `make down`.\n[api]\nurl = "{api}"\n')
    console.print(f"Prefect  http://{HOST}:{prefect_port}\nMLflow   {mlflow}\nlogs     {_record().parent}")
    for name in orphans:
        console.print(f"closed   {name}: the services had ended before it did")
    console.print("run      .venv/bin/prefect deployment run rl-post/r1 --watch")


def stop_services(console: Console) -> None:
    """End what `start_services` started and nothing else."""
    PREFECT_TOML.unlink(missing_ok=True)
    if not _record().exists():
        console.print("nothing was started")
        return
    for name, started in reversed(read_json(_record()).items()):
        _end(started["pid"], started["created"])
        console.print(f"ended {name}")
    _record().unlink()


def close_orphans(api: str, pool: str) -> list[str]:
    """Set the flow runs of a work pool that has no worker to Crashed, and return their names.

    A power failure or `make down` cut them off. They would stay Running for ever and keep the deployment's concurrency
    slot: no later run would begin.
    """
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        orphans = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=ALIVE))),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
        )
        for run in orphans:
            client.set_flow_run_state(run.id, Crashed(message="Its process ended with the services."), force=True)
    return [run.name for run in orphans]


def _local_deployments() -> list[str]:
    """Return the names of the deployments that run on this machine; others wait for the pool of a cluster."""
    deployments = yaml.safe_load(DEPLOYMENTS.read_text())["deployments"]
    return [deployment["name"] for deployment in deployments if deployment["work_pool"]["name"] == POOL]


def _record() -> Path:
    return services_in(home()) / "started.json"


def _prefect(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "prefect", *arguments]


def _mlflow(port: int) -> list[str]:
    store = [
        "--backend-store-uri",
        f"sqlite:///{tracking_database(home())}",
        "--artifacts-destination",
        str(tracking_artifacts(home())),
    ]
    return [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1", *store]


def _log(name: str) -> Path:
    return _record().parent / f"{name}.log"


def _launch(name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own and record it."""
    with _log(name).open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    started = read_json(_record()) if _record().exists() else {}
    created = psutil.Process(process.pid).create_time()
    write_json(_record(), {**started, name: {"pid": process.pid, "created": created}})
    return process


def _call(command: list[str], environment: dict[str, str]) -> None:
    """Run a command to its end; a failure shows what it printed."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"`{' '.join(command[2:])}` failed:\n{done.stdout}{done.stderr}")


def _end(pid: int, created: float) -> None:
    """End a process and the group that it leads, if it is still the one that was started."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    if abs(process.create_time() - created) > 1.0:
        return  # The number was given to another process meanwhile.
    family = [process, *process.children(recursive=True)]
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=TIMEOUTS.stop)
    # MLflow's server restarts helpers that end before it does. They are in the group, but not in the family.
    survivors = {*alive, *_group(pid)}
    for survivor in survivors:
        with suppress(psutil.NoSuchProcess):
            survivor.kill()
    psutil.wait_procs(survivors, timeout=TIMEOUTS.stop)


def _group(number: int) -> Iterator[psutil.Process]:
    """Yield the processes of a group."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == number:
                yield process


def _free_port(first: int) -> int:
    """Return the first port from `first` on that nothing listens on."""
    for port in range(first, first + 100):
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((HOST, port))
                return port
    raise UserError(f"no port from {first} to {first + 99} is free")
