"""The learner's tasks: cold start and policy update."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tasks.cluster.limits import limits_of
from tasks.cluster.placement import actor_name
from tasks.dataset.curriculum import observe, summarise
from tasks.dataset.prompt_order import read_pass_rates
from tasks.orchestrator.dispatch import stage
from tasks.processes.actors import ActorSpec, ask, ranks
from tasks.processes.learner_group import learner_accelerator, learner_ranks
from tasks.records.samples import STATUSES, SampleRow, read_samples
from tasks.run.directory import Run
from tasks.run.events import Kind, read_events, record
from tasks.run.ledger import Receipt, once, policy_folder
from tasks.update.environment import learner_environment
from tasks.update.learner_rank import LearnerRank
from tasks.update.metrics import batch_metrics
from trainer.files import write_json

logger = logging.getLogger(__name__)


def learner_actors(run: Run) -> dict[str, ActorSpec]:
    """Return the actors of a run's learner, one a rank, for `tasks.processes.actors.actors`."""
    recipe, accelerator = run.recipe, learner_accelerator(run)
    environment = learner_environment(recipe, accelerator)
    gpus = 0 if recipe.engine.colocated else recipe.learner.gpus  # the engines hold them
    options = {"num_cpus": recipe.learner.cpus, "num_gpus": gpus, "runtime_env": {"env_vars": environment}}
    return {
        actor_name("learner", rank): (LearnerRank, {"run": run, "rank": rank}, options)
        for rank in range(recipe.learner.ranks)
    }


@stage(name="cold start", run_name="cold start", limit=lambda limits: limits.cold_start)
def cold_start(run: Run, dataset: Receipt) -> Receipt:
    """Fine-tune the base policy on demonstrations, and write weights version 0.

    Returns:
        `path` of the policy in Hugging Face format and the `metrics` of the fit.
    """

    def make() -> Receipt:
        first, *_ = ranks(run)
        limits = limits_of(run)
        (fitted,) = ask([first], "cold_start", dataset["model"], dataset, timeout=limits.cold_start)
        ask(learner_ranks(run), "save_weights", 0, fitted["path"], timeout=limits.learner)
        metrics = {f"cold_start/{name}": value for name, value in fitted["metrics"].items()}
        return {"folder": run.portable(fitted["path"]), "metrics": metrics}

    receipt = once(run.policy, make)
    return {"path": policy_folder(run), "metrics": receipt["metrics"]}


@stage(name="update policy", run_name="update step {step}", limit=lambda limits: limits.update)
def update_policy(
    run: Run,
    step: int,
    policy: Receipt,
    before: Receipt,
    scored: Sequence[Receipt],
    after: Sequence[Receipt | None] = (),
) -> Receipt:
    """Make one policy update of a step's scored samples.

    Args:
        run: The run.
        step: Counts from 1.
        policy: Receipt of the cold start.
        before: Receipt of the previous update; updates run one after the other.
        scored: Receipts of the step's scored shards.
        after: Receipts of tasks that must end first: the previous checkpoint, the evaluation on engines that share the
            learner's GPUs, or the sending of the learner's weights.

    Returns:
        `version` of the new weights and the `metrics` of the samples and of the update.
    """
    paths = [shard["path"] for shard in scored]

    def make() -> Receipt:
        # The write-ahead log: from here on the update can be replayed.
        write_json(run.batch(step), {"scored": [Path(path).name for path in paths]})
        metrics, *_ = ask(learner_ranks(run), "update", step, policy["path"], paths, timeout=limits_of(run).learner)
        samples = read_samples(paths)
        if run.recipe.data.curriculum:
            rates = observe(read_pass_rates(run, step - 1), samples)
            write_json(run.pass_rates(step), rates)
            metrics |= summarise(rates, run.recipe.data.curriculum)
        if metrics["policy/without_signal"]:
            _note_without_signal(run, step, samples)
        return {"version": step, "metrics": {**batch_metrics(samples, step - 1), **metrics}}

    receipt = once(run.update(step), make)
    tokens, seconds = receipt["metrics"]["policy/tokens"], receipt["seconds"]
    receipt["metrics"] |= {"time/update": seconds, "perf/update_tokens_per_second": tokens / seconds}
    return receipt


@stage(name="save checkpoint", run_name="checkpoint {step}", limit=lambda limits: limits.checkpoint)
def save_checkpoint(run: Run, step: int, policy: Receipt, update: Receipt) -> Receipt:
    """Write the learner's whole state after a step's update, while the engines go on.

    Args:
        run: The run.
        step: Counts from 1.
        policy: Receipt of the cold start.
        update: Receipt of the update; the next one waits for the checkpoint.

    Returns:
        `version`, `seconds`.
    """

    def make() -> Receipt:
        ask(learner_ranks(run, step), "save_checkpoint", step, policy["path"], timeout=limits_of(run).learner)
        return {"version": update["version"]}

    return once(run.checkpointed(step), make)


def _note_without_signal(run: Run, step: int, samples: Sequence[SampleRow]) -> None:
    """Report once a run that a step has nothing to learn from, and what to look at. The metrics show each such step."""
    event: Kind = "step without signal"
    if not any(told["event"] == event for told in read_events(run.events)):
        counts = Counter(row["status"] for row in samples)
        statuses = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
        why = (
            "an optimizer step had no gradient on any trained token, so the weights stayed as they were. Of the step's "
            f"samples are {statuses}. Look at reward/accuracy: are the questions too easy or too hard? And at "
            "reward/status/…: could the answers be scored? With a correction, at policy/importance_rejected_share too. "
            "policy/without_signal counts such steps"
        )
        logger.warning("step %d: %s", step, why)
        record(run.events, event, step=step, why=why)
