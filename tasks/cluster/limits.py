"""How long the work of a recipe may take: a pure function of the recipe and of the model's size.

Each limit is the work divided by the slowest speed that still counts as working, so that it grows with the responses,
the samples, the model and the steps to replay. What the recipe's `timeouts` say takes its place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from configs.reward import Http, Reward
from configs.schema import Recipe
from tasks.cluster.memory import FP32
from tasks.run.directory import Run
from trainer.files import read_json
from trainer.model.shape import parameters_of

# The slowest speeds that count as working: each a tenth or less of what was measured, or of a data sheet.
DISK = 50e6  # Bytes a second of a file system over a network that others use too.
NETWORK = 5e6  # Bytes a second of a hub or an object store.
LINK = 100e6  # Bytes a second from the learner's memory into an engine.
CPU_FLOPS, GPU_FLOPS = 5e9, 2e13  # Operations a second of a process on a CPU, and of a GPU.
UPDATE = 30.0  # Seconds of an update beside the arithmetic and the disk.
DECODE_STEP = 0.25  # Seconds that an engine takes for a token of all its samples, beside the arithmetic.
ROWS = 50.0  # Rows a second that are read, compared, checked and tokenised.

UNKNOWN_PARAMETERS = 1e12  # Of a model of the hub before it is here.
UNKNOWN_ROWS, UNKNOWN_QUESTIONS = 1_000_000, 10_000  # Of a source that is taken whole, before it was read.
LEAST_SAMPLES = 8  # Of a request: more requests would only take more time.
ENGINE_LOSSES = 3  # Of one engine, before the task that it works for fails.
COPIES_KEPT = 15  # Of the weights, that an archive may have to send: of four versions, and three of three checkpoints.


@dataclass(frozen=True)
class Limits:
    """Seconds; the names are those of `configs.timeouts.Timeouts`, and two more for waits within a task.

    Attributes:
        engine: until an engine serves a version that is on the disk, whatever it has to do first.
        learner: until the learner is at a version and has written it, whatever it has to do first.
    """

    dataset: float
    cold_start: float
    start_engines: float
    rollout: float
    reward: float
    update: float
    checkpoint: float
    publish: float
    evaluate: float
    archive: float
    engine_start: float
    request: float
    hang: float
    bucket: float
    engine: float
    learner: float


def limits_of(run: Run) -> Limits:
    """Return the limits of a run: of the model as it was prepared, where its size was not known before."""
    prepared = read_json(run.dataset) if run.dataset.exists() else {}
    parameters = parameters_of(run.recipe.model.path) or parameters_of(prepared.get("model", ""))
    return limits(run.recipe, parameters, prepared.get("eval_rows"))


def limits(recipe: Recipe, parameters: float | None, eval_rows: int | None = None) -> Limits:
    """Return the limits of a recipe.

    Args:
        recipe: The recipe.
        parameters: Of the model; None where that is not known.
        eval_rows: Evaluation questions, where the recipe takes all of a source.
    """
    parameters = parameters or UNKNOWN_PARAMETERS
    weights = FP32 * parameters
    rollout, timeouts = recipe.rollout, recipe.timeouts
    engine_flops = recipe.engine.gpus * GPU_FLOPS or CPU_FLOPS
    learner_flops = recipe.learner.ranks * (recipe.learner.gpus * GPU_FLOPS or CPU_FLOPS)
    samples = rollout.groups_begun * rollout.samples_per_prompt
    questions = recipe.data.eval_size or eval_rows or UNKNOWN_QUESTIONS
    answers = questions * (1 + recipe.evaluation.samples_per_prompt)
    given = {name: value for name, value in timeouts if isinstance(value, float)}

    def forward(count: float) -> float:
        """Operations for the tokens of so many samples: two a parameter and token."""
        return count * recipe.model.context_length * 2 * parameters

    def generation(count: float, groups: int) -> float:
        """Seconds until one engine has made so many responses, as many groups at once as it takes."""
        turns = ceil(groups / recipe.engine.in_flight)
        return forward(count) / engine_flops + turns * rollout.max_response_tokens * DECODE_STEP

    engine_start = given.get("engine_start", timeouts.answer + 2 * weights / DISK)
    engine = 2 * timeouts.answer + engine_start + 2 * weights / DISK
    cold_start = recipe.cold_start
    demonstrations = cold_start.steps * cold_start.batch_size if cold_start else 0
    update = UPDATE + _passes(recipe) * forward(samples) / learner_flops + weights / DISK
    steps_back = recipe.learner.checkpoint_every + recipe.versions_kept
    learner = 2 * timeouts.answer + 5 * weights / DISK + (1 + steps_back) * update
    served = learner + ENGINE_LOSSES * engine  # What has to be there before an engine answers.
    derived = {
        "dataset": timeouts.answer + weights / NETWORK + (recipe.data.train_size or UNKNOWN_ROWS) / ROWS,
        "cold_start": learner + 3 * forward(demonstrations) / learner_flops,
        "start_engines": timeouts.answer + engine,
        "rollout": served + generation(samples, rollout.groups_begun),
        "reward": timeouts.answer + _scoring(recipe, ceil(samples / rollout.shards)),
        "update": 2 * timeouts.answer + learner,
        "checkpoint": learner + 4 * weights / DISK,
        "publish": learner + engine + weights / LINK,
        "evaluate": served + generation(answers, 2 * questions) + _scoring(recipe, answers),
        "archive": timeouts.answer + COPIES_KEPT * weights / NETWORK,
        "engine_start": engine_start,
        "request": timeouts.answer + generation(min(samples_at_once(recipe), max(samples, answers)), 1),
        "hang": 120.0 + 2 * weights / DISK,
        "bucket": 120.0 + recipe.weight_sync.bucket_bytes / LINK,
        "engine": engine,
        "learner": learner,
    }
    return Limits(**{name: given.get(name, value) for name, value in derived.items()})


def samples_at_once(recipe: Recipe) -> int:
    """Return the most samples that an engine has at once, from the shards that share it or from an evaluation."""
    group = max(recipe.rollout.samples_per_prompt, recipe.evaluation.samples_per_prompt)
    sharing = ceil(recipe.rollout.shards / recipe.engine.count)
    return sharing * recipe.engine.in_flight * max(group, LEAST_SAMPLES)


def described(found: Limits) -> Mapping[str, str]:
    """Return the limits in words, by name."""
    return {name: duration(value) for name, value in vars(found).items()}


def duration(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _passes(recipe: Recipe) -> float:
    """Forward passes that an update of the step's samples costs: a backward pass counts as two."""
    algorithm = recipe.algorithm
    looked_at = [
        algorithm.needs_own_logprobs,
        algorithm.needs_reference,
        algorithm.needs_teacher,
        algorithm.needs_values,
    ]
    trained = 2 if algorithm.needs_values else 1
    again = 1 if recipe.learner.gradient_checkpointing else 0
    return sum(looked_at) + (3 + again) * trained * recipe.optimizer.epochs


def _scoring(recipe: Recipe, samples: int) -> float:
    """Seconds that scoring takes if every part of every sample runs into its own limit."""
    away = recipe.timeouts.away
    return max(_of_reward(reward, samples, away) for reward in (recipe.reward, *recipe.data.rewards.values()))


def _of_reward(reward: Reward, samples: int, away: float) -> float:
    seconds = 0.0
    for part in (reward.accuracy, *reward.parts.values()):
        if isinstance(part, Http):
            requests = ceil(samples / (1 if part.judge else part.batch_size))
            seconds += ceil(requests / part.concurrency) * part.attempts * 2 * part.request_timeout_seconds
            seconds += away
        else:
            seconds += samples * reward.timeout_seconds / reward.workers
    return seconds
