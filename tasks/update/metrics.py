"""What a step's samples say: rewards, accuracy, lengths, and what the step lost."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from tasks.records.samples import GIVEN_UP, is_right, status_counts


def batch_metrics(rows: Sequence[dict[str, Any]], learner_version: int) -> dict[str, float]:
    """Summarise the scored samples of a step.

    Args:
        rows: Scored samples.
        learner_version: The weights version that the update starts from.

    Returns:
        `reward/…` over the samples that could be scored, `reward/status/…` and `rollout/…` over all of them; lengths
        are in tokens, of those that were not given up. A mean of nothing is left out: 0 would be a number.
    """
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    verdicts = [verdict for row in rows if (verdict := is_right(row)) is not None]
    lengths = [len(row["response_ids"]) for row in rows if row["finish_reason"] != GIVEN_UP] or [0]
    lags = [learner_version - version for row in rows for version in row["weights_versions"]]
    return {
        **({"reward/mean": fmean(rewards), "reward/std": pstdev(rewards)} if rewards else {}),
        **({"reward/accuracy": fmean(verdicts)} if verdicts else {}),
        **status_counts("reward/status", rows),
        "reward/unscorable_share": fmean(row["status"] == "unscorable" for row in rows),
        "reward/timeout_share": fmean(row["status"] == "timeout" for row in rows),
        "reward/error_share": fmean(row["status"] == "error" for row in rows),
        "rollout/samples": float(len(rows)),
        "rollout/tokens": float(sum(lengths)),
        "rollout/response_length_mean": fmean(lengths),
        "rollout/response_length_max": float(max(lengths)),
        "rollout/truncated_share": fmean(row["finish_reason"] == "length" for row in rows),
        "rollout/given_up_share": fmean(row["finish_reason"] == GIVEN_UP for row in rows),
        **({"rollout/weights_lag_mean": fmean(lags)} if lags else {}),
    }
