"""The publication of new weights as a task."""

from collections.abc import Sequence
from time import perf_counter

from tasks.orchestrator.dispatch import stage
from tasks.processes.actors import engines
from tasks.run.directory import Run
from tasks.run.ledger import Receipt
from tasks.weights.publication import bring_up, sync_from_memory


@stage(name="publish weights", run_name="publish weights {version}", limit=lambda limits: limits.publish)
def publish_weights(run: Run, version: int, after: Sequence[Receipt | None]) -> Receipt:
    """Bring every engine to a weights version and check that it reports it.

    Args:
        run: The run.
        version: A version that the learner has, or that is complete on disk.
        after: Receipts of tasks that must end first: the update, and work with the weights that are replaced.

    Returns:
        `version`, `seconds`.
    """
    start = perf_counter()
    if run.recipe.weight_sync.via != "disk":
        sync_from_memory(run, version, engines(run))
    bring_up(run, version, engines(run))
    return {"version": version, "seconds": perf_counter() - start}
