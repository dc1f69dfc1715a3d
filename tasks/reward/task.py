"""The reward task: score the samples of a shard."""

import json
from functools import lru_cache

from configs.schema import Recipe
from tasks.orchestrator.dispatch import stage
from tasks.records.question import Question
from tasks.records.samples import SCORED, Row, read_samples, write_samples
from tasks.reward.dynamic_sampling import accuracies
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer
from tasks.run.directory import Run, receipt_of
from tasks.run.ledger import Receipt, once


@stage(name="score rewards", run_name="reward step {step} shard {shard}", limit=lambda limits: limits.reward)
def score_rewards(run: Run, step: int, shard: int, samples: Receipt) -> Receipt:
    """Score the samples of a shard and store them beside their rollout.

    Returns:
        `path` of the scored samples and the `rollout_seconds` that they took to make; with dynamic sampling the raw
        `accuracies` of each group.
    """

    def make() -> Receipt:
        rows = score_rows(read_samples([samples["path"]]), run.recipe)
        path = run.scored(step, shard)
        write_samples(path, rows, SCORED)
        receipt = {"path": str(path), "rollout_seconds": samples["seconds"]}
        return receipt | {"accuracies": accuracies(rows)} if run.recipe.algorithm.dynamic_sampling else receipt

    return once(receipt_of(run.scored(step, shard)), make)


def score_rows(rows: list[Row], recipe: Recipe) -> list[Row]:
    """Return the samples with `reward`, `parts` and `status`. Training and evaluation score with this function."""
    answered = [
        Answered(
            row["text"],
            Question(row["prompt_id"], row["question"], row["gold"], row["source"], row["metadata"]),
            row["finish_reason"],
            len(row["response_ids"]),
        )
        for row in rows
    ]
    return [
        {**row, "reward": score.reward, "parts": json.dumps(score.parts), "status": score.status}
        for row, score in zip(rows, _scorer(recipe.model_dump_json()).score(answered), strict=True)
    ]


@lru_cache(maxsize=1)
def _scorer(recipe: str) -> Scorer:
    """Keep the last recipe's scorer, and its processes, from one shard to the next; they end with this process."""
    parsed = Recipe.model_validate_json(recipe)
    return Scorer(parsed.reward, parsed.data.rewards, parsed.timeouts.answer)
