"""The engines' tasks: start, rollout of a shard, publication of new weights."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tokenizers import Tokenizer

from tasks.dataset.store import read_prompts
from tasks.rollout.carry import part, take_up
from tasks.rollout.choice import choose
from tasks.rollout.client import EngineClient
from tasks.rollout.engine import Engine
from tasks.rollout.fleet import Fleet
from tasks.rollout.publication import bring_up, sync_from_memory
from tasks.rollout.samples import ROLLOUT, Row, read_samples, write_samples
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
    accelerator = vendor(run.recipe.accelerator_type, offered()) if settings.gpus else "cpu"
    return {
        _name(index): (
            Engine,
            {"index": index, "recipe": run.recipe, "log_dir": run.logs, "accelerator": accelerator},
            options,
        )
        for index in range(settings.count)
    }


@stage(name="start engines", run_name="start engines", timeout=START_TIMEOUT)
def start_engines(run: Run, dataset: Receipt) -> Receipt:
    """Start every engine with the model as it was before the cold start, which runs meanwhile.

    Engines that share the learner's GPUs start when it has had its turn, with the first weights that are published.

    Returns:
        `urls` of the engines.
    """
    if run.recipe.engine.colocated:
        return {"urls": []}
    return {"urls": ask(_engines(run), "start", Path(dataset["model"]), BASE_VERSION, timeout=START_TIMEOUT - MARGIN)}


@stage(name="generate rollouts", run_name="rollout step {step} shard {shard}", timeout=3600)
def generate_rollouts(
    run: Run, step: int, shard: int, dataset: Receipt, weights: Receipt, before: Sequence[Receipt]
) -> Receipt:
    """Sample the responses of a shard of a step's prompts, and store them.

    Args:
        run: The run.
        step: Counts from 1.
        shard: Counts from 0; with dynamic sampling a step has several rounds of `rollout.shards` shards, counted on.
        dataset: Receipt of the dataset.
        weights: Receipt of the publication of the weights to sample from.
        before: Receipts of the step before's shards; with over-sampling this one goes on with what they left.

    Returns:
        `path` of the samples.
    """

    def make() -> Receipt:
        rollout, version = run.recipe.rollout, weights["version"]
        turn, number = divmod(shard, rollout.shards)
        places = choose(run, step, turn, read_prompts(dataset["path"], "train"))[number :: rollout.shards]
        sampling = Sampling(
            rollout.samples_per_prompt, rollout.max_response_tokens, rollout.temperature, run.recipe.seed
        )
        wanted = len(range(rollout.prompts_per_step)[number :: rollout.shards])
        rows = take_up(_carried(run, step - 1, shard), places, step, sampling)
        with fleet(run, version, _engines_of(number, rollout.shards, run.recipe.engine.count)) as engines:
            limit = wanted if wanted < len(places) else None
            rows = roll_out(engines, load_text_tokenizer(dataset), rows, version, sampling, limit)
        taken, left = part(rows, wanted)
        if left:
            write_samples(_carried_path(run, step, shard), left, ROLLOUT)
        path = run.step_file(step, f"rollout-{shard:02d}.parquet")
        write_samples(path, taken, ROLLOUT)
        return {"path": str(path)}

    return once(run.step_file(step, f"rollout-{shard:02d}.json"), make)


@stage(name="publish weights", run_name="publish weights {version}", timeout=START_TIMEOUT)
def publish_weights(run: Run, version: int, after: Sequence[Receipt | None]) -> Receipt:
    """Bring every engine to a weights version and check that it reports it.

    Args:
        run: The run.
        version: The version; the learner's, or complete on disk.
        after: Receipts of what has to be done before: the update, and work on the weights that are replaced.

    Returns:
        `version`, `seconds`.
    """
    start = perf_counter()
    if run.recipe.weight_sync.via != "disk":
        sync_from_memory(run, version, _engines(run))
    bring_up(run, version, _engines(run))
    return {"version": version, "seconds": perf_counter() - start}


def fleet(run: Run, version: int, indices: Sequence[int] | None = None) -> Fleet:
    """Return engines of a run, all or some, each brought up with a weights version if it was lost."""

    def connect(index: int) -> EngineClient:
        (endpoint,) = bring_up(run, version, [find_actor(run.id, _name(index))])
        return EngineClient(endpoint)

    settings = run.recipe.engine
    numbers = range(settings.count) if indices is None else indices
    return Fleet([partial(connect, index) for index in numbers], settings.in_flight)


def load_text_tokenizer(dataset: Receipt) -> Tokenizer:
    """Load the model's tokenizer for decoding, without transformers, whose import takes seconds."""
    return Tokenizer.from_file(f"{dataset['model']}/tokenizer.json")


def _engines_of(shard: int, shards: int, engines: int) -> Sequence[int]:
    """Return the engines that a shard uses: its own where there are enough, else one that it shares."""
    return range(shard, engines, shards) if engines >= shards else [shard % engines]


def _carried_path(run: Run, step: int, shard: int) -> Path:
    return run.step_file(step, f"carried-{shard:02d}.parquet")


def _carried(run: Run, step: int, shard: int) -> list[Row]:
    """Return the samples that a shard of a step left unfinished."""
    path = _carried_path(run, step, shard)
    return read_samples([path]) if path.exists() else []


def _name(index: int) -> str:
    return f"engine-{index}"


def _engines(run: Run) -> list[Any]:
    return [find_actor(run.id, _name(index)) for index in range(run.recipe.engine.count)]
