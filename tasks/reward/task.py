"""The reward task: score the samples of a shard."""

import json

from configs.reward import Reward
from tasks.dataset.question import Question
from tasks.reward.score import score
from tasks.rollout.samples import SCORED, Row, read_samples, write_samples
from tasks.runtime.dispatch import stage
from tasks.runtime.ledger import Receipt, Run, once


@stage(name="score rewards", run_name="reward step {step} shard {shard}", timeout=600)
def score_rewards(run: Run, step: int, shard: int, samples: Receipt) -> Receipt:
    """Score the samples of a shard and store them beside their rollout.

    Returns:
        `path` of the scored samples and the `rollout_seconds` that they took to make.
    """

    def make() -> Receipt:
        rows = score_rows(read_samples([samples["path"]]), run.recipe.reward)
        path = run.step_file(step, f"scored-{shard:02d}.parquet")
        write_samples(path, rows, SCORED)
        return {"path": str(path), "rollout_seconds": samples["seconds"]}

    return once(run.step_file(step, f"scored-{shard:02d}.json"), make)


def score_rows(rows: list[Row], reward: Reward) -> list[Row]:
    """Return the samples with `reward`, `parts` and `status`. Training and evaluation score with this function."""
    scored = []
    for row in rows:
        question = Question(row["prompt_id"], "", row["gold"], row["source"], row["metadata"])
        result = score(row["text"], question, reward, row["finish_reason"])
        scored.append({**row, "reward": result.reward, "parts": json.dumps(result.parts), "status": result.status})
    return scored
