"""A step's samples are summed up honestly: what can't be scored is not in the mean, and is counted."""

import pytest

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
    assert "rollout/weights_lag_mean" not in batch_metrics([lost], learner_version=4)


def test_u08_what_has_no_verdict_is_not_in_the_accuracy_and_is_counted_by_status() -> None:
    rows = [
        row(1.0, "right"),
        row(0.0, "wrong"),
        row(0.0, "truncated", finish="length"),
        row(None, "unscorable"),
        row(None, "error"),
        row(0.0, "timeout"),
    ]

    metrics = batch_metrics(rows, learner_version=4)

    assert metrics["reward/accuracy"] == 1 / 3
    # A timeout decides the reward, though not the accuracy.
    assert metrics["reward/mean"] == 1 / 4
    assert {name: value for name, value in metrics.items() if name.startswith("reward/status/")} == {
        f"reward/status/{status}": 1.0 for status in ("right", "wrong", "truncated", "unscorable", "error", "timeout")
    }
    assert [metrics[f"reward/{status}_share"] for status in ("unscorable", "error", "timeout")] == [1 / 6] * 3


def test_u08_a_judge_that_is_down_for_half_of_a_step_lowers_no_number() -> None:
    up = [row(1.0, "right"), row(0.5, "wrong")]

    metrics = batch_metrics([*up, row(None, "error"), row(None, "error")], learner_version=4)

    whole = batch_metrics(up, learner_version=4)
    means = ("reward/accuracy", "reward/mean", "reward/std")
    assert [metrics[name] for name in means] == [whole[name] for name in means]
    assert metrics["reward/status/error"] == 2.0


@pytest.mark.parametrize("status", ["error", "unscorable"])
def test_u08_a_step_without_any_reward_has_no_mean_and_says_what_it_lost(status: str) -> None:
    metrics = batch_metrics([row(None, status), row(None, status)], learner_version=4)

    assert not {"reward/mean", "reward/std", "reward/accuracy"} & metrics.keys()
    assert (metrics[f"reward/status/{status}"], metrics[f"reward/{status}_share"]) == (2.0, 1.0)


def test_u08_a_step_of_timeouts_has_a_reward_and_no_accuracy() -> None:
    metrics = batch_metrics([row(0.0, "timeout")], learner_version=4)

    assert metrics["reward/mean"] == 0.0
    assert "reward/accuracy" not in metrics
