"""The rollout task: the samples of a shard of a step."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from tasks.dataset.prompt_order import prompts_of_round
from tasks.dataset.store import read_prompts
from tasks.orchestrator.dispatch import stage
from tasks.processes.actors import find_engine
from tasks.records.samples import GIVEN_UP, ROLLOUT, SampleRow, read_samples, write_samples
from tasks.rollout.carry import sound, split_finished, take_up
from tasks.rollout.fleet import Fleet
from tasks.rollout.shard import Sampling, roll_out
from tasks.run.directory import Run, begun_of, receipt_of
from tasks.run.events import record
from tasks.run.ledger import Receipt, once
from tasks.server.client import EngineClient
from tasks.weights.publication import bring_up
from trainer.files import read_json
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
            rollout.samples_per_prompt,
            rollout.max_response_tokens,
            rollout.temperature,
            run.recipe.seed,
            run.recipe.stop,
        )
        wanted = len(range(rollout.prompts_per_step)[number :: rollout.shards])
        path = run.rollout(step, shard)

        def fresh() -> list[SampleRow]:
            return take_up(_carried(run, step - 1, shard), places, step, sampling)

        indices = _engines_of(number, rollout.shards, run.recipe.engine.count)
        with fleet(run, dataset, version, indices) as engines:
            limit = wanted if wanted < len(places) else None
            rows = sample(run, engines, dataset, path, fresh, version, sampling, limit)
        taken, left = split_finished(rows, wanted)
        if left:
            write_samples(run.carried(step, shard), left, ROLLOUT)
        write_samples(path, taken, ROLLOUT)
        begun_of(path).unlink(missing_ok=True)
        return {"path": str(path)}

    return once(receipt_of(run.rollout(step, shard)), make)


def sample(
    run: Run,
    engines: Fleet,
    dataset: Receipt,
    path: Path,
    fresh: Callable[[], list[SampleRow]],
    version: int,
    sampling: Sampling,
    wanted: int | None = None,
) -> list[SampleRow]:
    """Roll out samples that will be stored at `path`. If that fails, what there is of them is kept for the next try.

    Samples that were given up are told in the run's story. The other arguments are those of `roll_out`; `fresh` gives
    the samples of a first try.
    """
    begun = begun_of(path)
    rows = roll_out(
        engines,
        load_text_tokenizer(dataset),
        read_samples([begun]) if begun.exists() else fresh(),
        version,
        sampling,
        wanted,
        ModelTokens.of(dataset["tokens"]),
        salvage=lambda rows: write_samples(begun, rows, ROLLOUT),
    )
    if lost := [row for row in rows if row["finish_reason"] == GIVEN_UP]:
        reasons = [row["flaw"] for row in lost if "flaw" in row]  # what an earlier try gave up is in the log
        why = f"no response could be used, the last because {reasons[-1] if reasons else 'of what the log says'}"
        record(run.events, "samples given up", samples=len(lost), of=len(rows), version=version, why=why)
    return rows


def fleet(run: Run, dataset: Receipt, version: int, indices: Sequence[int] | None = None) -> Fleet:
    """Return all or some engines of a run. A lost engine is brought up again with a weights version."""
    ends = ModelTokens.of(dataset["tokens"]).ends

    def connect(index: int) -> EngineClient:
        (endpoint,) = bring_up(run, version, [find_engine(run, index)])
        return EngineClient(endpoint, ends=ends, stop=run.recipe.stop)

    settings = run.recipe.engine
    numbers = range(settings.count) if indices is None else indices
    return Fleet([partial(connect, index) for index in numbers], settings.in_flight)


def load_text_tokenizer(dataset: Receipt) -> Tokenizer:
    """Load the model's tokenizer for decoding, without transformers, whose import takes seconds."""
    return read_tokenizer(Path(dataset["model"]))


def vocabulary_of(run: Run) -> ModelTokens | None:
    """Return the tokens of a run's model, if its dataset was prepared."""
    prepared = read_json(run.dataset) if run.dataset.exists() else {}
    return ModelTokens.of(prepared["tokens"]) if "tokens" in prepared else None


def _engines_of(shard: int, shards: int, engines: int) -> Sequence[int]:
    """Return the engines that a shard uses: its own where there are enough, else one that it shares."""
    return range(shard, engines, shards) if engines >= shards else [shard % engines]


def _carried(run: Run, step: int, shard: int) -> list[SampleRow]:
    """Return the samples that a shard of a step left unfinished."""
    path = run.carried(step, shard)
    return [sound(row) for row in read_samples([path])] if path.exists() else []
