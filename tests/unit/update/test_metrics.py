"""A step's samples are summed up honestly: what can't be scored is not in the mean, and is counted."""

from tasks.update.metrics import batch_metrics


def row(reward: float | None, status: str, length: int = 3, finish: str = "stop", version: int = 4) -> dict:
    return {
        "reward": reward,
        "status": status,
        "response_ids": [0] * length,
        "finish_reason": finish,
        "weights_versions": [version] * length,
    }


def test_an_unscorable_sample_is_counted_and_not_in_the_mean() -> None:
    metrics = batch_metrics([row(0.0, "wrong"), row(None, "unscorable")], learner_version=4)

    assert metrics["reward/mean"] == 0.0
    assert metrics["reward/unscorable_share"] == 0.5


def test_truncation_is_told_by_the_finish_reason_and_not_by_the_length() -> None:
    rows = [
        row(0.0, "truncated", length=4, finish="length"),
        row(1.0, "right", length=4, finish="stop"),
        row(1.0, "right", length=3, finish="stop"),
    ]

    metrics = batch_metrics(rows, learner_version=4)

    assert metrics["rollout/truncated_share"] == 1 / 3
    assert metrics["rollout/response_length_max"] == 4


def test_the_lag_is_the_distance_of_the_samples_weights_from_the_learners() -> None:
    metrics = batch_metrics([row(1.0, "right", version=3), row(1.0, "right", version=5)], learner_version=5)

    assert metrics["rollout/weights_lag_mean"] == 1.0


def test_u13_samples_that_were_given_up_are_counted_and_shorten_no_length() -> None:
    lost = row(None, "error", length=0, finish="error")

    metrics = batch_metrics([row(1.0, "right"), lost], learner_version=4)

    assert (metrics["rollout/given_up_share"], metrics["reward/error_share"]) == (0.5, 0.5)
    assert (metrics["rollout/response_length_mean"], metrics["reward/mean"]) == (3.0, 1.0)
    assert batch_metrics([lost], learner_version=4)["rollout/weights_lag_mean"] == 0.0


def test_a_step_without_any_reward_has_a_mean_of_zero_and_says_so() -> None:
    metrics = batch_metrics([row(None, "error")], learner_version=4)

    assert (metrics["reward/mean"], metrics["reward/unscorable_share"]) == (0.0, 1.0)
