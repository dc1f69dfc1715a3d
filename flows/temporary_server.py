"""A Prefect server for the time of one run, where none is configured.

Prefect would start one by itself, but that one outlives a run that is killed. This one runs under the guard.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

from configs.timeouts import Timeouts
from flows.health import wait_until_healthy
from tasks.processes import guard
from tasks.processes.network import LOOPBACK, reserved_port
from tasks.run.directory import home, services_in

SERVER_ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # By default every change of a task run's state is written alone. With SQLite, one task in four then met a locked
    # database when it asked for its slot, and waited two seconds: half of a step of the tiny policy.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""Settings of a Prefect server that this project starts."""


@contextmanager
def prefect_server() -> Iterator[None]:
    """Use the Prefect server that is configured, or start one and end it with the block, however that ends.

    Raises:
        UserError: if the server does not start; names its log.
    """
    if get_current_settings().api.url:
        yield
        return
    log_path = services_in(home()) / "prefect-server-temporary.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with reserved_port() as port, log_path.open("wb") as log:
        server = ["-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
        guarded = guard.start([sys.executable, *server], SERVER_ENVIRONMENT, log, Timeouts().grace)
        try:
            url = f"http://{LOOPBACK}:{port}/api"
            wait_until_healthy("the temporary Prefect server", f"{url}/health", guarded, log_path)
            with temporary_settings({PREFECT_API_URL: url}):
                try:
                    yield
                finally:
                    # At the process's end they would be sent to a server that is gone, again and again for minutes.
                    APILogWorker.drain_all(timeout=Timeouts().grace)
        finally:
            assert guarded.stdin
            guarded.stdin.close()
            guarded.wait()
