"""The learner's tasks: cold start and policy update."""

from collections.abc import Sequence
from typing import Any

import ray

from configs.schema import Recipe
from tasks.rollout.samples import read_samples
from tasks.runtime.cluster import find_actor
from tasks.runtime.dispatch import stage
from tasks.runtime.files import write_json
from tasks.runtime.ledger import Receipt, Run, once
from tasks.update.metrics import batch_metrics
from tasks.update.rank import LearnerRank


def learner_actors(run: Run) -> dict[str, tuple[type, dict[str, Any], dict[str, Any]]]:
    """Return the actors of a run's learner, one a rank, for `tasks.runtime.cluster.actors`."""
    settings = run.recipe.learner
    # Waiting OpenMP threads would spin against the engine's. MKL's one code path gives the same bits whatever the
    # alignment of the tensors, and is the fastest one on AMD's CPUs.
    threads = str(settings.threads)
    environment = {"env_vars": {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": threads, "MKL_CBWR": "AVX2"}}
    options = {"num_cpus": settings.cpus, "num_gpus": settings.gpus, "runtime_env": environment}
    return {name: (LearnerRank, {"run": run, "rank": rank}, options) for rank, name in enumerate(_names(run.recipe))}


@stage(name="cold start", run_name="cold start", timeout=3600)
def cold_start(run: Run, dataset: Receipt) -> Receipt:
    """Fine-tune the base policy on demonstrations, and write weights version 0.

    Returns:
        `path` of the policy in Hugging Face format and the `metrics` of the fit.
    """

    def make() -> Receipt:
        ranks = _ranks(run)
        fitted: Any = ray.get(ranks[0].cold_start.remote(dataset["model"], dataset))
        ray.get([rank.save_initial.remote(fitted["path"]) for rank in ranks])
        metrics = {f"cold_start/{name}": value for name, value in fitted["metrics"].items()}
        return {"path": fitted["path"], "metrics": metrics}

    return once(run.step_file(0, "policy.json"), make)


@stage(name="update policy", run_name="update step {step}", timeout=3600)
def update_policy(run: Run, step: int, policy: Receipt, scored: Sequence[Receipt]) -> Receipt:
    """Make one policy update of a step's scored samples.

    Returns:
        `version` of the new weights and the `metrics` of the samples and of the update.
    """
    paths = [shard["path"] for shard in scored]

    def make() -> Receipt:
        # The write-ahead log: from here on the update can be replayed.
        write_json(run.step_file(step, "batch.json"), {"scored": paths})
        metrics, *_ = ray.get([rank.update.remote(step, policy["path"], paths) for rank in _ranks(run)])
        return {"version": step, "metrics": {**batch_metrics(read_samples(paths), step - 1), **metrics}}

    receipt = once(run.step_file(step, "update.json"), make)
    tokens, seconds = receipt["metrics"]["policy/tokens"], receipt["seconds"]
    receipt["metrics"] |= {"time/update": seconds, "perf/update_tokens_per_second": tokens / seconds}
    return receipt


def _names(recipe: Recipe) -> list[str]:
    return [f"learner-{rank}" for rank in range(recipe.learner.ranks)]


def _ranks(run: Run) -> list[Any]:
    """Return the learner's ranks, met in one process group where there are several."""
    ranks = [find_actor(run.id, name) for name in _names(run.recipe)]
    if len(ranks) > 1:
        groups = set(ray.get([rank.group.remote() for rank in ranks]))
        if len(groups) > 1 or None in groups:
            address = ray.get(ranks[0].address.remote())
            ray.get([rank.join.remote(address, len(ranks)) for rank in ranks])
    return ranks
