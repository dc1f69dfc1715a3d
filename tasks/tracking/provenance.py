"""Where a measurement comes from: the commit of the code, and the machine."""

import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path

from configs.timeouts import Timeouts


def git_commit() -> str:
    """Return the commit that this code was checked out at, or `unknown`."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return (
            subprocess.run(command, capture_output=True, text=True, timeout=Timeouts().connect).stdout.strip()
            or "unknown"
        )
    return "unknown"


def provenance() -> dict[str, str]:
    """Return where a measurement comes from: the `commit` of the code, and the `machine` in words."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return {"commit": git_commit(), "machine": machine}
