"""The metrics of a step, gathered from the receipts of its tasks."""

from collections.abc import Sequence

from tasks.run.ledger import Receipt


def step_metrics(
    shards: int,
    scored: Sequence[Receipt],
    update: Receipt,
    weights: Receipt,
    evaluation: Receipt | None,
    checkpoint: Receipt | None,
) -> dict[str, float]:
    """Merge what a step's tasks measured.

    Args:
        shards: Shards of a rollout round.
        scored: Receipts of the reward tasks, one a shard, round after round; empty for step 0.
        update: Receipt of the update, or of the cold start for step 0.
        weights: Receipt of the publication.
        evaluation: Receipt of the evaluation of the new weights, where it was due.
        checkpoint: Receipt of the learner's checkpoint, where it was due.

    Returns:
        Metrics by name. A round's shards run side by side, and rounds one after the other: the `time/…` (seconds) of
        rollout and reward is that of the slowest shard, summed over the rounds.
    """
    metrics = {**update["metrics"], "time/publish": weights["seconds"]}
    if scored:
        rounds = [scored[first : first + shards] for first in range(0, len(scored), shards)]
        rollout = sum(max(shard["rollout_seconds"] for shard in each) for each in rounds)
        metrics["time/rollout"] = rollout
        metrics["time/reward"] = sum(max(shard["seconds"] for shard in each) for each in rounds)
        metrics["perf/rollout_tokens_per_second"] = metrics["rollout/tokens"] / rollout
    if evaluation:
        metrics |= evaluation["metrics"]
        metrics["time/evaluate"] = evaluation["seconds"]
    if checkpoint:
        metrics["time/checkpoint"] = checkpoint["seconds"]
    return metrics
