"""The engines' tasks: start, rollout of a shard, publication of new weights."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import ray
from tokenizers import Tokenizer

from tasks.dataset.order import prompts_of_step
from tasks.dataset.store import read_prompts
from tasks.rollout.client import EngineClient
from tasks.rollout.engine import Engine
from tasks.rollout.samples import ROLLOUT, write_samples
from tasks.rollout.shard import Sampling, roll_out
from tasks.runtime.accelerator import vendor
from tasks.runtime.cluster import find_actor, offered
from tasks.runtime.dispatch import stage
from tasks.runtime.ledger import Receipt, Run, once

# What an engine reports until the first weights are published: the model before the cold start.
BASE_VERSION = -1


def engine_actors(run: Run) -> dict[str, tuple[type, dict[str, Any], dict[str, Any]]]:
    """Return the actors of a run's engines for `tasks.runtime.cluster.actors`."""
    settings = run.recipe.engine
    options = {"num_cpus": settings.cpus, "num_gpus": settings.gpus}
    accelerator = vendor(offered())
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


@stage(name="start engines", run_name="start engines", timeout=1800)
def start_engines(run: Run, dataset: Receipt) -> Receipt:
    """Start every engine with the model as it was before the cold start, which runs meanwhile.

    Returns:
        `urls` of the engines.
    """
    starts = [engine.start.remote(Path(dataset["model"]), BASE_VERSION) for engine in _engines(run)]
    return {"urls": ray.get(starts)}


@stage(name="generate rollouts", run_name="rollout step {step} shard {shard}", timeout=3600)
def generate_rollouts(run: Run, step: int, shard: int, dataset: Receipt, weights: Receipt) -> Receipt:
    """Sample the responses of a shard of a step's prompts, and store them.

    Returns:
        `path` of the samples.
    """

    def make() -> Receipt:
        recipe = run.recipe
        prompts = read_prompts(dataset["path"], "train")
        chosen = prompts_of_step(recipe.seed, step - 1, len(prompts), recipe.rollout.prompts_per_step)
        groups = [(group, prompts[index]) for group, index in enumerate(chosen)][shard :: recipe.rollout.shards]
        sampling = Sampling(
            recipe.rollout.samples_per_prompt,
            recipe.rollout.max_response_tokens,
            recipe.rollout.temperature,
            recipe.seed,
        )
        client = engine_client(run, shard % recipe.engine.count, weights["version"])
        rows = roll_out(client, load_text_tokenizer(dataset), groups, step, weights["version"], sampling)
        path = run.step_file(step, f"rollout-{shard:02d}.parquet")
        write_samples(path, rows, ROLLOUT)
        return {"path": str(path)}

    return once(run.step_file(step, f"rollout-{shard:02d}.json"), make)


@stage(name="publish weights", run_name="publish weights {version}", timeout=1800)
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
    ray.get([engine.publish.remote(run.weights(version), version) for engine in _engines(run)])
    return {"version": version, "seconds": perf_counter() - start}


def engine_client(run: Run, index: int, version: int) -> EngineClient:
    """Return a client of an engine, after the engine was brought up with a weights version if it was lost."""
    endpoint: Any = ray.get(find_actor(run.id, _name(index)).publish.remote(run.weights(version), version))
    return EngineClient(endpoint)


def load_text_tokenizer(dataset: Receipt) -> Tokenizer:
    """Load the model's tokenizer for decoding, without transformers, whose import takes seconds."""
    return Tokenizer.from_file(f"{dataset['model']}/tokenizer.json")


def _name(index: int) -> str:
    return f"engine-{index}"


def _engines(run: Run) -> list[Any]:
    return [find_actor(run.id, _name(index)) for index in range(run.recipe.engine.count)]
