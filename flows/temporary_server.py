"""A Prefect server for the time of one run, where none is configured.

Prefect would start one by itself, but that one outlives a run that is killed. This one runs under the guard.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from configs.errors import UserError
from tasks.runtime.ledger import home
from tasks.runtime.ports import LOOPBACK, reserved_port

START_TIMEOUT = 180.0  # Seconds; a first start makes the database's tables.


@contextmanager
def prefect_server() -> Iterator[None]:
    """Use the Prefect server that is configured, or start one and end it with the block, however that ends.

    Raises:
        UserError: if the server does not start; names its log.
    """
    if get_current_settings().api.url:
        yield
        return
    log_path = home() / "services" / "prefect-server-temporary.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with reserved_port() as port, log_path.open("wb") as log:
        server = ["-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
        guard = subprocess.Popen(
            [sys.executable, "-m", "tasks.runtime.guard", "--", sys.executable, *server],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"},
            start_new_session=True,
        )
        try:
            url = f"http://{LOOPBACK}:{port}/api"
            _wait_until_healthy(url, guard, str(log_path))
            with temporary_settings({PREFECT_API_URL: url}):
                yield
        finally:
            assert guard.stdin
            guard.stdin.close()
            guard.wait()


def _wait_until_healthy(url: str, guard: subprocess.Popen[bytes], log: str) -> None:
    def ask() -> None:
        if guard.poll() is not None:
            raise UserError(f"the temporary Prefect server ended with exit code {guard.returncode}; see {log}")
        httpx.get(f"{url}/health", timeout=5.0).raise_for_status()

    try:
        Retrying(
            retry=retry_if_exception_type(httpx.HTTPError), wait=wait_fixed(0.2), stop=stop_after_delay(START_TIMEOUT)
        )(ask)
    except RetryError:
        raise UserError(f"the temporary Prefect server did not answer within {START_TIMEOUT:g} s; see {log}") from None
