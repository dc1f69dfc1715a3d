"""Waiting for a service that was just started."""

import subprocess
from pathlib import Path

import httpx
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from configs.errors import UserError
from configs.timeouts import Timeouts

TIMEOUTS = Timeouts()


def wait_until_healthy(name: str, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when `url` answers.

    Raises:
        UserError: the process ended, or there is no answer within `timeouts.service`; shows the end of its log.
    """

    def ask() -> None:
        if process.poll() is not None:
            raise UserError(f"{name} ended with exit code {process.returncode}; {_end_of(log)}")
        httpx.get(url, timeout=TIMEOUTS.connect).raise_for_status()

    try:
        Retrying(
            retry=retry_if_exception_type(httpx.HTTPError),
            wait=wait_fixed(0.2),
            stop=stop_after_delay(TIMEOUTS.service),
        )(ask)
    except RetryError:
        raise UserError(f"{name} did not answer at {url} within {TIMEOUTS.service:.0f} s; {_end_of(log)}") from None


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join([f"the end of {log}:", *lines])
