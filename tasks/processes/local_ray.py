"""How a driver gets its Ray: the cluster that RAY_ADDRESS names, or one of its own on this machine."""

import secrets
from collections.abc import Mapping, MutableMapping
from typing import Any

from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore[reportAttributeAccessIssue]  # compiled

from tasks.processes.code import shipped_code


def prepare_local_ray(environment: MutableMapping[str, str]) -> None:
    """Protect a Ray that will be started here from other users of the machine. A named cluster has its own token.

    The token belongs to this process and is not stored in the home directory. Variables that are set already stay.

    Args:
        environment: That of this process.
    """
    if "RAY_ADDRESS" in environment or "RAY_AUTH_MODE" in environment:
        return
    environment["RAY_AUTH_MODE"] = "token"
    environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    # Above one worker a core, Ray ends workers that are idle for a second. A new worker takes seconds to import
    # Prefect, which more than doubled the time of a step here.
    environment.setdefault("RAY_num_workers_soft_limit", "16")
    # Ray read these at its import. ray.init (2.60) makes the same calls when it chooses the token itself.
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def connection(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `ray.init`."""
    # Without an address, Ray would join the cluster started last on this machine, or wait for it if it is gone.
    address = environment.get("RAY_ADDRESS") or "local"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    return {"address": address} | quiet | shipped_code(environment)
