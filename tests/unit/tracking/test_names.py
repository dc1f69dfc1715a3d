"""Metric names and values that MLflow would refuse are mapped, and nothing is lost silently."""

import math

import pytest

from tasks.tracking.tracker import metric_name, metric_points


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("reward/mean", "reward/mean"),
        ("eval/math/acc@4", "eval/math/acc_at_4"),
        ("time(s)/rollout", "time_s_/rollout"),
        ("acc%", "acc_"),
        ("reward=1", "reward_1"),
        ("a[0]", "a_0_"),
        ("", "_"),
        ("/abs", "abs"),
        ("../x", "x"),
        ("a//b", "a/b"),
        ("a" * 251, "a" * 250),
    ],
)
def test_a_name_is_mapped_to_what_mlflow_takes(name: str, stored: str) -> None:
    assert metric_name(name) == stored


def test_two_names_that_map_to_the_same_one_are_both_kept() -> None:
    points = metric_points({"a@1": 1.0, "a_at_1": 2.0}, step=3, timestamp=0)

    assert {point.key: point.value for point in points} == {"a_at_1": 1.0, "a_at_1_2": 2.0}
    assert {point.step for point in points} == {3}


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    points = metric_points({"good": 1.0, "bad": math.nan, "worse": math.inf}, step=0, timestamp=0)

    assert {point.key: point.value for point in points} == {"good": 1.0, "non_finite_metrics": 2.0}
