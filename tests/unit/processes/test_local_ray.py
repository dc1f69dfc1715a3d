"""How a driver gets its Ray: what the environment names when the flow begins, or one of its own that is closed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.orchestrator.task_runner import ray_task_runner
from tasks.processes.local_ray import connection

ROOT = Path(__file__).parents[3]


def auth_mode(environment: dict[str, str]) -> str:
    """Ray's mode after `prepare_local_ray`, in a fresh interpreter that imported Ray before, and the token's length."""
    code = (
        "import os, ray\n"
        "from ray._private.authentication.authentication_utils import get_authentication_mode_name as name\n"
        "from ray._raylet import get_authentication_mode\n"
        "from tasks.processes.local_ray import prepare_local_ray\n"
        "prepare_local_ray(os.environ)\n"
        "print(name(get_authentication_mode()), len(os.environ.get('RAY_AUTH_TOKEN', '')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_local_ray_is_closed_though_ray_was_imported_before() -> None:
    assert auth_mode({}) == "token 64"


@pytest.mark.parametrize("environment", [{"RAY_ADDRESS": "auto"}, {"RAY_AUTH_MODE": "disabled"}])
def test_what_the_environment_says_stays(environment: dict[str, str]) -> None:
    assert auth_mode(environment) == "disabled 0"


def test_the_address_is_the_one_of_when_the_flow_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ray_task_runner()

    assert "address" not in runner.init_kwargs
    assert connection({})["address"] == "local"
    assert connection({"RAY_ADDRESS": "10.0.0.1:6379"})["address"] == "10.0.0.1:6379"
