"""The reward task: score the samples of a shard."""

import json

from configs.reward import Reward
from configs.schema import Recipe
from tasks.orchestrator.dispatch import stage
from tasks.records.question import Question
from tasks.records.samples import GIVEN_UP, SCORED, SampleRow, read_samples, write_samples
from tasks.reward.dynamic_sampling import accuracies
from tasks.reward.outcome import Answered, Score
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


def score_rows(rows: list[SampleRow], recipe: Recipe) -> list[SampleRow]:
    """Return the samples with `reward`, `parts` and `status`. Training and evaluation score with this function.

    A sample that was given up is not scored: its status is `error`.
    """
    answered = [
        Answered(
            row["text"],
            Question(row["prompt_id"], row["question"], row["gold"], row["source"], row["metadata"]),
            row["finish_reason"],
            len(row["response_ids"]),
            opened=row.get("opened") or "",
        )
        for row in rows
        if row["finish_reason"] != GIVEN_UP
    ]
    scores = iter(kept_scorer(recipe).score(answered))
    scored = [Score(None, {}, "error") if row["finish_reason"] == GIVEN_UP else next(scores) for row in rows]
    return [
        {**row, "reward": score.reward, "parts": json.dumps(score.parts), "status": score.status}
        for row, score in zip(rows, scored, strict=True)
    ]


class _Kept:
    """The scorer of this worker process, which stays from one shard to the next of the same run."""

    scorer: Scorer | None = None
    rewards: tuple[Reward, dict[str, Reward]] | None = None


def kept_scorer(recipe: Recipe) -> Scorer:
    """Return this process's scorer of a recipe's rewards. It first closes a scorer of other rewards."""
    rewards = (recipe.reward, recipe.data.rewards)
    if _Kept.scorer is None or _Kept.rewards != rewards:
        if _Kept.scorer:
            _Kept.scorer.close()
        _Kept.scorer, _Kept.rewards = Scorer(*rewards, recipe.timeouts.answer, recipe.timeouts.away), rewards
    return _Kept.scorer
