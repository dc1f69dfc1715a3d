"""The evaluation task: greedy and sampled accuracy on the held-out questions."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from tasks.dataset.store import read_prompts
from tasks.evaluate.statistics import accuracy
from tasks.orchestrator.dispatch import stage
from tasks.records.samples import SCORED, SampleRow, write_samples
from tasks.reward.task import score_rows
from tasks.rollout.shard import Sampling, begin
from tasks.rollout.task import fleet, load_text_tokenizer, sample
from tasks.run.directory import Run, begun_of
from tasks.run.ledger import Receipt, once


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
        tokenizer = load_text_tokenizer(dataset)
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
        with fleet(run, version) as engines:
            for name, sampling in settings.items():
                # The same seeds at every evaluation: what differs between two versions is then the weights alone.
                path = run.evaluated(version, name)
                fresh = partial(begin, prompts, 0, sampling)
                rows = score_rows(sample(run, engines, tokenizer, path, fresh, version, sampling), recipe)
                write_samples(path, rows, SCORED)
                begun_of(path).unlink(missing_ok=True)
                metrics |= accuracy_metrics(f"eval/heldout/{name}_accuracy", rows)
        return {"version": version, "metrics": metrics}

    return once(run.evaluation(version), make)


def accuracy_metrics(name: str, rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return the accuracy of scored answers under `name`, and its 95 % interval; each question counts once."""
    outcomes: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        outcomes[row["prompt_id"]].append(float(row["status"] == "right"))
    estimate = accuracy(outcomes)
    return {name: estimate.mean, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
