"""New weights for a run's engines: from the learner's memory if the recipe says so, else from disk.

An engine starts from disk, so disk is also the fallback if the transfer from memory fails. A version that is not on
disk is written first: the learner can be brought to any version.
"""

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tasks.cluster.limits import limits_of
from tasks.processes.actors import ask
from tasks.processes.learner_group import learner_ranks
from tasks.run.directory import Run
from tasks.run.events import record
from tasks.run.ledger import policy_folder
from tasks.server.client import Endpoint

logger = logging.getLogger(__name__)


def sync_from_memory(run: Run, version: int, engines: Sequence[Any]) -> None:
    """Have the learner send a weights version to the running engines that have another version.

    A failed transfer raises nothing: `bring_up` finds out which version each engine has.

    Args:
        run: The run.
        version: The version.
        engines: Actors.
    """
    limits = limits_of(run)
    reports = zip(engines, ask(engines, "reports", timeout=limits.engine), strict=True)
    behind = [engine for engine, report in reports if report and report[1] != version]
    if not behind:
        return
    ranks, policy = learner_ranks(run, version), policy_folder(run)
    # Colocated engines take memory then that a replay may need.
    ask(ranks, "hold", version, policy, timeout=limits.learner)
    waiting = [endpoint for endpoint in ask(behind, "await_weights", timeout=limits.engine) if endpoint]
    if not waiting:
        return
    shares, left = deal(run.recipe.weight_sync.via, ask(ranks, "host", timeout=limits.learner), waiting)
    failures = ask(ranks, "send_weights", version, policy, shares, timeout=limits.learner)
    for why in [*(f"no rank of the learner is on the node of {engine.url}" for engine in left), *failures]:
        if why:
            logger.warning("weights %d go to engines by disk: %s", version, why)
            record(run.events, "weights not sent", version=version, why=why)


def deal(via: str, hosts: Sequence[str], engines: Sequence[Endpoint]) -> tuple[list[list[Endpoint]], list[Endpoint]]:
    """Assign engines to the ranks that send to them: all to rank 0 for a broadcast, else by node.

    Args:
        via: `broadcast` or `tensors`.
        hosts: Each rank's address.
        engines: Where they are reached.

    Returns:
        The engines of each rank, and the engines without a rank on their node.
    """
    if via == "broadcast":
        return [list(engines), *([] for _ in hosts[1:])], []
    shares: list[list[Endpoint]] = [[] for _ in hosts]
    left: list[Endpoint] = []
    for engine in engines:
        host = urlsplit(engine.url).hostname
        (shares[hosts.index(host)] if host in hosts else left).append(engine)
    return shares, left


def bring_up(run: Run, version: int, engines: Sequence[Any]) -> list[Endpoint]:
    """Bring engines to a weights version. Engines that don't report it yet load it from disk.

    Args:
        run: The run.
        version: The version.
        engines: Actors.

    Returns:
        Where they are reached.
    """
    limits, folder = limits_of(run), run.weights(version)
    needed = run.recipe.stores_weights(version) or not _all_report(version, engines, limits.engine)
    if needed and not folder.exists():
        ask(learner_ranks(run, version), "save_weights", version, policy_folder(run), timeout=limits.learner)
    return ask(engines, "publish", folder, version, timeout=limits.engine)


def _all_report(version: int, engines: Sequence[Any], timeout: float) -> bool:
    reports = ask(engines, "reports", timeout=timeout)
    return all(report is not None and report[1] == version for report in reports)
