"""How a driver gets its Ray: the cluster that RAY_ADDRESS names, or one of its own on this machine."""

import secrets
from collections.abc import Mapping, MutableMapping
from typing import Any

from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore[reportAttributeAccessIssue]  # compiled

from tasks.processes.code import shipped_code


def prepare_local_ray(environment: MutableMapping[str, str]) -> None:
    """Close a Ray that will be started here to other users of the machine; a cluster that is named has its own token.

    The token is this process's own, and kept out of the home directory. What is set already stays.

    Args:
        environment: That of this process.
    """
    if "RAY_ADDRESS" in environment or "RAY_AUTH_MODE" in environment:
        return
    environment["RAY_AUTH_MODE"] = "token"
    environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    # Ray ends workers beyond one a core that were idle for a second. A new one takes seconds to import Prefect, which
    # more than doubled the time of a step here.
    environment.setdefault("RAY_num_workers_soft_limit", "16")
    # Ray read these when it was imported. It does the same where it chooses the token by itself (ray.init, 2.60).
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def connection(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `ray.init`."""
    # With no address, Ray would join whatever was started last on this machine, or wait for it if it is gone.
    address = environment.get("RAY_ADDRESS") or "local"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    return {"address": address} | quiet | shipped_code(environment)
