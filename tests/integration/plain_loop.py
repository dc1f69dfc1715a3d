"""A run's training as a plain loop: one thing after the other, without flow, Ray and ledger.

`python -m tests.integration.plain_loop HOME RUN OUT` trains the recipe of a run on its dataset, from its cold start on.
OUT then has the weights of each version, `weights-3`, and the scored samples of each step, `scored-3.parquet`.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tasks.dataset.prompt_order import prompts_of_round
from tasks.dataset.store import read_prompts
from tasks.engine.engine import Engine
from tasks.records.samples import SCORED, write_samples
from tasks.reward.task import score_rows
from tasks.rollout.fleet import Fleet
from tasks.rollout.shard import Sampling, begin, roll_out
from tasks.run.directory import Run
from tasks.run.ledger import open_run, policy_folder
from tasks.server.client import EngineClient
from tasks.update.learner_rank import training_samples
from trainer.files import read_json
from trainer.learner.learner import Learner


def train(run: Run, out: Path) -> None:
    """Train as the flow does, and keep what comes of it in a folder."""
    recipe, rollout = run.recipe, run.recipe.rollout
    torch.set_num_threads(recipe.learner.threads)
    dataset = read_json(run.step_file(0, "dataset.json"))
    prompts = read_prompts(dataset["path"], "train")
    tokenizer = Tokenizer.from_file(f"{dataset['model']}/tokenizer.json")
    sampling = Sampling(rollout.samples_per_prompt, rollout.max_response_tokens, rollout.temperature, recipe.seed)
    learner = Learner(recipe, Path(policy_folder(run)))
    engine = Engine(0, recipe, out, "cpu")
    learner.save_weights(out / "weights-0")
    try:
        for step in range(1, recipe.steps + 1):
            version = max(0, step - 1 - recipe.pipeline.max_staleness)
            connect = partial(EngineClient, engine.publish(out / f"weights-{version}", version))
            with Fleet([connect], recipe.engine.in_flight) as fleet:
                rows = begin(prompts_of_round(run, step, 0, prompts), step, sampling)
                scored = score_rows(roll_out(fleet, tokenizer, rows, version, sampling), recipe)
            samples = out / f"scored-{step}.parquet"
            scored.sort(key=lambda row: row["group"] % rollout.shards)  # The flow has them shard by shard.
            write_samples(samples, scored, SCORED)
            learner.update(training_samples([str(samples)], recipe))
            learner.save_weights(out / f"weights-{step}")
    finally:
        engine.stop()


if __name__ == "__main__":
    train(open_run(Path(sys.argv[1]), sys.argv[2]), Path(sys.argv[3]))
