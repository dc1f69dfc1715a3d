"""The evaluation task: greedy and sampled accuracy on the held-out questions."""

import logging
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from tasks.dataset.store import read_prompts
from tasks.evaluate.statistics import accuracy, outcomes_of
from tasks.orchestrator.dispatch import stage
from tasks.records.samples import SCORED, SampleRow, is_right, status_counts, write_samples
from tasks.reward.task import score_rows
from tasks.rollout.shard import Sampling, begin
from tasks.rollout.task import fleet, sample
from tasks.run.directory import Run, begun_of
from tasks.run.events import Kind, record
from tasks.run.ledger import Receipt, once

logger = logging.getLogger(__name__)


@stage(name="evaluate", run_name="evaluate weights {version}", limit=lambda limits: limits.evaluate)
def evaluate(run: Run, version: int, dataset: Receipt, weights: Receipt) -> Receipt:
    """Answer every held-out question greedily and by sampling, with the weights that the engine reports as `version`.

    Training's rewards score the answers; evaluation's own sampling settings are used and stored with them.

    Returns:
        `version` and the `metrics`, `eval/heldout/…`.
    """

    def make() -> Receipt:
        recipe = run.recipe
        prompts = list(enumerate(read_prompts(dataset["path"], "eval")))
        settings = {
            "greedy": Sampling(1, recipe.rollout.max_response_tokens, 0.0, recipe.seed, recipe.stop),
            "sampled": Sampling(
                recipe.evaluation.samples_per_prompt,
                recipe.rollout.max_response_tokens,
                recipe.evaluation.temperature,
                recipe.seed,
                recipe.stop,
            ),
        }
        metrics: dict[str, float] = {}
        with fleet(run, dataset, version) as engines:
            for name, sampling in settings.items():
                # The same seeds at every evaluation: what differs between two versions is then the weights alone.
                path = run.evaluated(version, name)
                fresh = partial(begin, prompts, 0, sampling)
                rows = score_rows(sample(run, engines, dataset, path, fresh, version, sampling), recipe)
                write_samples(path, rows, SCORED)
                begun_of(path).unlink(missing_ok=True)
                found = accuracy_metrics(f"eval/heldout/{name}_accuracy", rows)
                _note_without_score(run, version, f"eval/heldout/{name}_accuracy", found)
                metrics |= found
        return {"version": version, "metrics": metrics}

    return once(run.evaluation(version), make)


def accuracy_metrics(name: str, rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return the accuracy of scored answers under `name`, with its 95 % interval; each question counts once.

    It is over the answers that have a verdict. `<name>_scored` is their share of all answers, and `…_status/<status>`
    counts the answers of each status. If no answer has a verdict there is no accuracy: 0 would be one.
    """
    outcomes = outcomes_of(rows)
    counts = status_counts(f"{name.removesuffix('_accuracy')}_status", rows)
    counts[f"{name}_scored"] = fmean(is_right(row) is not None for row in rows)
    if not outcomes:
        return counts
    estimate = accuracy(outcomes)
    return {name: estimate.mean, f"{name}_low": estimate.low, f"{name}_high": estimate.high, **counts}


def _note_without_score(run: Run, version: int, name: str, metrics: dict[str, float]) -> None:
    """Report an evaluation that has no accuracy, and what to look at."""
    if name in metrics:
        return
    statuses = ", ".join(
        f"{count:.0f} {key.rpartition('/')[2]}" for key, count in metrics.items() if count and "_status/" in key
    )
    event: Kind = "evaluation without score"
    why = (
        f"no answer could be scored ({statuses}), so there is no {name}, and the weights are not compared with others. "
        "Look at the reward's warnings in the task's log: is a judge down, or reward.timeout_seconds too short?"
    )
    logger.warning("weights %d: %s", version, why)
    record(run.events, event, version=version, why=why)
