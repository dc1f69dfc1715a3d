"""A step's metrics out of its tasks' receipts."""

import pytest

from tasks.run.step_metrics import step_metrics

UPDATE = {"metrics": {"rollout/tokens": 90.0}}
WEIGHTS = {"seconds": 0.5}


def shard(rollout: float, reward: float) -> dict[str, float]:
    return {"rollout_seconds": rollout, "seconds": reward}


@pytest.mark.parametrize(
    ("scored", "rollout", "reward"),
    [
        ([shard(2.0, 0.5), shard(3.0, 0.25)], 3.0, 0.5),
        ([shard(2.0, 0.5), shard(3.0, 0.25), shard(6.0, 1.0), shard(1.0, 2.0)], 9.0, 2.5),
    ],
    ids=["shards run side by side", "rounds run one after the other"],
)
def test_the_time_of_a_stage_is_that_of_its_slowest_shard_in_each_round(
    scored: list[dict[str, float]], rollout: float, reward: float
) -> None:
    metrics = step_metrics(2, scored, UPDATE, WEIGHTS, None, None)

    assert (metrics["time/rollout"], metrics["time/reward"]) == (rollout, reward)
    assert metrics["perf/rollout_tokens_per_second"] == 90.0 / rollout


def test_a_step_without_samples_has_no_time_of_them() -> None:
    evaluation = {"seconds": 4.0, "metrics": {"eval/heldout/greedy_accuracy": 0.5}}

    metrics = step_metrics(2, [], UPDATE, WEIGHTS, evaluation, {"seconds": 3.0})

    assert metrics == UPDATE["metrics"] | {
        "time/publish": 0.5,
        "time/evaluate": 4.0,
        "time/checkpoint": 3.0,
        "eval/heldout/greedy_accuracy": 0.5,
    }
