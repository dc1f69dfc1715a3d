"""The engines' tasks: start, rollout of a shard, publication of new weights."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from tokenizers import Tokenizer

from tasks.dataset.store import read_prompts
from tasks.rollout.choice import choose
from tasks.rollout.client import EngineClient
from tasks.rollout.engine import Engine
from tasks.rollout.samples import ROLLOUT, write_samples
from tasks.rollout.shard import Sampling, roll_out
from tasks.runtime.accelerator import vendor
from tasks.runtime.cluster import ask, find_actor, offered
from tasks.runtime.dispatch import stage
from tasks.runtime.ledger import Receipt, Run, once

# What an engine reports until the first weights are published: the model before the cold start.
BASE_VERSION = -1
START_TIMEOUT = 1800.0  # Seconds that bringing up the engines with some weights may take.
MARGIN = 60.0  # Seconds by which a task waits less for its actors than it may take, to end with their names.


def engine_actors(run: Run) -> dict[str, tuple[type, dict[str, Any], dict[str, Any]]]:
    """Return the actors of a run's engines for `tasks.runtime.cluster.actors`."""
    settings = run.recipe.engine
    options = {"num_cpus": settings.cpus, "num_gpus": settings.gpus}
    accelerator = vendor(offered()) if settings.gpus else "cpu"
    return {
        _name(index): (
            Engine,
            {
                "index": index,
                "engine": settings,
                "model": run.recipe.model,
                "log_dir": run.logs,
                "accelerator": accelerator,
                "seed": run.recipe.seed,
            },
            options,
        )
        for index in range(settings.count)
    }


@stage(name="start engines", run_name="start engines", timeout=START_TIMEOUT)
def start_engines(run: Run, dataset: Receipt) -> Receipt:
    """Start every engine with the model as it was before the cold start, which runs meanwhile.

    Returns:
        `urls` of the engines.
    """
    return {"urls": ask(_engines(run), "start", Path(dataset["model"]), BASE_VERSION, timeout=START_TIMEOUT - MARGIN)}


@stage(name="generate rollouts", run_name="rollout step {step} shard {shard}", timeout=3600)
def generate_rollouts(run: Run, step: int, shard: int, dataset: Receipt, weights: Receipt) -> Receipt:
    """Sample the responses of a shard of a step's prompts, and store them.

    With dynamic sampling a step has several rounds of `rollout.shards` shards, counted on.

    Returns:
        `path` of the samples.
    """

    def make() -> Receipt:
        recipe = run.recipe
        turn, part = divmod(shard, recipe.rollout.shards)
        groups = choose(run, step, turn, read_prompts(dataset["path"], "train"))[part :: recipe.rollout.shards]
        sampling = Sampling(
            recipe.rollout.samples_per_prompt,
            recipe.rollout.max_response_tokens,
            recipe.rollout.temperature,
            recipe.seed,
        )
        with engine_client(run, shard % recipe.engine.count, weights["version"]) as client:
            rows = roll_out(client, load_text_tokenizer(dataset), groups, step, weights["version"], sampling)
        path = run.step_file(step, f"rollout-{shard:02d}.parquet")
        write_samples(path, rows, ROLLOUT)
        return {"path": str(path)}

    return once(run.step_file(step, f"rollout-{shard:02d}.json"), make)


@stage(name="publish weights", run_name="publish weights {version}", timeout=START_TIMEOUT)
def publish_weights(run: Run, version: int, after: Sequence[Receipt | None]) -> Receipt:
    """Bring every engine to a weights version and check that it reports it.

    Args:
        run: The run.
        version: The version, complete on disk.
        after: Receipts of what has to be done before: the update, and work on the weights that are replaced.

    Returns:
        `version`, `seconds`.
    """
    start = perf_counter()
    ask(_engines(run), "publish", run.weights(version), version, timeout=START_TIMEOUT - MARGIN)
    return {"version": version, "seconds": perf_counter() - start}


def engine_client(run: Run, index: int, version: int) -> EngineClient:
    """Return a client of an engine, after the engine was brought up with a weights version if it was lost."""
    engine = find_actor(run.id, _name(index))
    (endpoint,) = ask([engine], "publish", run.weights(version), version, timeout=START_TIMEOUT - MARGIN)
    return EngineClient(endpoint)


def load_text_tokenizer(dataset: Receipt) -> Tokenizer:
    """Load the model's tokenizer for decoding, without transformers, whose import takes seconds."""
    return Tokenizer.from_file(f"{dataset['model']}/tokenizer.json")


def _name(index: int) -> str:
    return f"engine-{index}"


def _engines(run: Run) -> list[Any]:
    return [find_actor(run.id, _name(index)) for index in range(run.recipe.engine.count)]
