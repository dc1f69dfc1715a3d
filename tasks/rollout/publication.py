"""New weights for a run's engines: from the learner's memory where the recipe says so, and from disk in any case.

Disk is what an engine starts from, so it is also the way out where the way through memory fails. A version that is not
there is written first: the learner can be brought to any version.
"""

import logging
from collections.abc import Sequence
from typing import Any

from tasks.rollout.client import TORN, Endpoint, WeightsNotUpdated
from tasks.runtime.cluster import ask
from tasks.runtime.events import record
from tasks.runtime.files import read_json
from tasks.runtime.ledger import Run
from tasks.update.task import learner_ranks

TIMEOUT = 1740.0  # Seconds that engines may take to start with some weights, or the learner to write or send them.

logger = logging.getLogger(__name__)


def sync_from_memory(run: Run, version: int, engines: Sequence[Any]) -> None:
    """Have the learner send a weights version to the engines that run and have another one.

    Where that fails, nothing is raised: `bring_up` finds out what each engine has.

    Args:
        run: The run.
        version: The version.
        engines: Actors.
    """
    reports = [report for report in ask(engines, "reports", timeout=TIMEOUT) if report]
    behind = [endpoint for endpoint, reported in reports if reported not in (version, TORN)]
    if not behind:
        return
    try:
        ask(learner_ranks(run), "send_weights", version, _policy(run), behind, timeout=TIMEOUT)
    except WeightsNotUpdated as error:
        logger.warning("weights %d go to the engines by disk: %s", version, error)
        record(run.events, "weights not sent", version=version, why=str(error))


def bring_up(run: Run, version: int, engines: Sequence[Any]) -> list[Endpoint]:
    """Bring engines to a weights version, from disk those that don't report it; at once where all do.

    Args:
        run: The run.
        version: The version.
        engines: Actors.

    Returns:
        Where they are reached.
    """
    if run.recipe.stores_weights(version) or not _all_report(version, engines):
        _write(run, version)
    return ask(engines, "publish", run.weights(version), version, timeout=TIMEOUT)


def _all_report(version: int, engines: Sequence[Any]) -> bool:
    reports = ask(engines, "reports", timeout=TIMEOUT)
    return all(report is not None and report[1] == version for report in reports)


def _write(run: Run, version: int) -> None:
    if not run.weights(version).exists():
        ask(learner_ranks(run), "save_weights", version, _policy(run), timeout=TIMEOUT)


def _policy(run: Run) -> str:
    """The folder of the policy that the updates started from."""
    return read_json(run.step_file(0, "policy.json"))["path"]
