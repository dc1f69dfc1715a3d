"""The metrics of a step, gathered from the receipts of its tasks."""

from collections.abc import Sequence

from tasks.runtime.ledger import Receipt


def step_metrics(
    scored: Sequence[Receipt], update: Receipt, weights: Receipt, evaluation: Receipt | None
) -> dict[str, float]:
    """Merge what a step's tasks measured.

    Args:
        scored: Receipts of the reward tasks, one a shard; empty for step 0.
        update: Receipt of the update, or of the cold start for step 0.
        weights: Receipt of the publication.
        evaluation: Receipt of the evaluation of the new weights, where it was due.

    Returns:
        Metrics by name. Shards run side by side, so a stage's `time/…` (seconds) is that of its slowest shard.
    """
    metrics = {**update["metrics"], "time/publish": weights["seconds"]}
    if scored:
        rollout = max(shard["rollout_seconds"] for shard in scored)
        metrics["time/rollout"] = rollout
        metrics["time/reward"] = max(shard["seconds"] for shard in scored)
        metrics["perf/rollout_tokens_per_second"] = metrics["rollout/tokens"] / rollout
    if evaluation:
        metrics |= evaluation["metrics"]
        metrics["time/evaluate"] = evaluation["seconds"]
    return metrics
