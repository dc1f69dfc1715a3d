import subprocess
import sys
from pathlib import Path

import pytest

from configs.errors import UserError
from flows.health import wait_until_healthy
from tasks.processes.network import LOOPBACK, reserved_port


def test_a_service_that_ends_at_its_start_is_an_error_with_the_end_of_its_log(tmp_path: Path):
    log = tmp_path / "service.log"
    with reserved_port() as port, log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit('no such table')"], stderr=output)

        with pytest.raises(
            UserError, match=r"the server ended with exit code 1; the end of .*service.log:\nno such table"
        ):
            wait_until_healthy("the server", f"http://{LOOPBACK}:{port}/health", process, log)
