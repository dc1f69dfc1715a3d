"""What a training run left: everything that must not depend on what happened meanwhile."""

from dataclasses import dataclass
from typing import Any

import mlflow

from tasks.records.samples import read_samples
from tasks.run.directory import Run
from tasks.run.ledger import committed_steps
from tasks.run.verify import verify
from trainer.files import sha256

MEASURED = ("reward/", "rollout/", "policy/", "eval/", "cold_start/")
"""Metrics that are the same in every run of a recipe; the others are times and sizes."""


@dataclass(frozen=True)
class Result:
    """The last weights' hash, all samples and evaluations, and MLflow's history."""

    weights: str
    samples: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    history: dict[str, list[tuple[int, float]]]
    status: str
    problems: list[str]


def result_of(run: Run) -> Result:
    """Read what a run left, from its directory and MLflow."""
    steps = committed_steps(run)
    client, found = mlflow_run(run)
    history = {
        name: [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]
        for name in sorted(found.data.metrics)
        if name.startswith(MEASURED)
    }
    return Result(
        sha256(run.weights(steps[-1]) / "model.safetensors"),
        [row for step in steps for row in read_samples(sorted(run.step_file(step, "").glob("scored-*.parquet")))],
        [row for step in steps for row in read_samples(sorted(run.step_file(step, "").glob("eval-*.parquet")))],
        history,
        found.info.status,
        verify(run),
    )


def differences(expected: Result, actual: Result) -> list[str]:
    """Name the parts in which two results differ."""
    return [name for name in Result.__dataclass_fields__ if getattr(expected, name) != getattr(actual, name)]


def mlflow_run(run: Run) -> tuple[mlflow.MlflowClient, Any]:
    """Return the one MLflow run of a training run."""
    client = mlflow.MlflowClient(run.recipe.tracking.uri or f"sqlite:///{run.home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(run.recipe.tracking.experiment)
    assert experiment
    (found,) = client.search_runs([experiment.experiment_id], f"tags.`rl_post.run` = '{run.id}'")
    return client, found
