"""The rollout task: the samples of a shard of a step."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from tasks.dataset.prompt_order import prompts_of_round
from tasks.dataset.store import read_prompts
from tasks.orchestrator.dispatch import stage
from tasks.processes.actors import find_engine
from tasks.records.samples import ROLLOUT, SampleRow, read_samples, write_samples
from tasks.rollout.carry import split_finished, take_up
from tasks.rollout.fleet import Fleet
from tasks.rollout.shard import Sampling, roll_out
from tasks.run.directory import Run, receipt_of
from tasks.run.ledger import Receipt, once
from tasks.server.client import EngineClient
from tasks.weights.publication import bring_up
from trainer.model.tokens import ModelTokens, read_tokenizer


@stage(name="generate rollouts", run_name="rollout step {step} shard {shard}", limit=lambda limits: limits.rollout)
def generate_rollouts(
    run: Run, step: int, shard: int, dataset: Receipt, weights: Receipt, before: Sequence[Receipt]
) -> Receipt:
    """Sample the responses of a shard of a step's prompts, and store them.

    Args:
        run: The run.
        step: Counts from 1.
        shard: Counts from 0, and on through the rounds of dynamic sampling, which have `rollout.shards` shards each.
        dataset: Receipt of the dataset.
        weights: Receipt of the publication of the weights to sample from.
        before: Receipts of the previous step's shards; with over-sampling this step goes on with what they left.

    Returns:
        `path` of the samples.
    """

    def make() -> Receipt:
        rollout, version = run.recipe.rollout, weights["version"]
        turn, number = divmod(shard, rollout.shards)
        places = prompts_of_round(run, step, turn, read_prompts(dataset["path"], "train"))[number :: rollout.shards]
        sampling = Sampling(
            rollout.samples_per_prompt, rollout.max_response_tokens, rollout.temperature, run.recipe.seed
        )
        wanted = len(range(rollout.prompts_per_step)[number :: rollout.shards])
        rows = take_up(_carried(run, step - 1, shard), places, step, sampling)
        indices = _engines_of(number, rollout.shards, run.recipe.engine.count)
        with fleet(run, dataset, version, indices) as engines:
            limit = wanted if wanted < len(places) else None
            rows = roll_out(engines, load_text_tokenizer(dataset), rows, version, sampling, limit)
        taken, left = split_finished(rows, wanted)
        if left:
            write_samples(run.carried(step, shard), left, ROLLOUT)
        path = run.rollout(step, shard)
        write_samples(path, taken, ROLLOUT)
        return {"path": str(path)}

    return once(receipt_of(run.rollout(step, shard)), make)


def fleet(run: Run, dataset: Receipt, version: int, indices: Sequence[int] | None = None) -> Fleet:
    """Return all or some engines of a run. A lost engine is brought up again with a weights version."""
    ends = ModelTokens.of(dataset["tokens"]).ends

    def connect(index: int) -> EngineClient:
        (endpoint,) = bring_up(run, version, [find_engine(run, index)])
        return EngineClient(endpoint, ends=ends)

    settings = run.recipe.engine
    numbers = range(settings.count) if indices is None else indices
    return Fleet([partial(connect, index) for index in numbers], settings.in_flight)


def load_text_tokenizer(dataset: Receipt) -> Tokenizer:
    """Load the model's tokenizer for decoding, without transformers, whose import takes seconds."""
    return read_tokenizer(Path(dataset["model"]))


def _engines_of(shard: int, shards: int, engines: int) -> Sequence[int]:
    """Return the engines that a shard uses: its own where there are enough, else one that it shares."""
    return range(shard, engines, shards) if engines >= shards else [shard % engines]


def _carried(run: Run, step: int, shard: int) -> list[SampleRow]:
    """Return the samples that a shard of a step left unfinished."""
    path = run.carried(step, shard)
    return read_samples([path]) if path.exists() else []
