"""The learner's tasks: cold start and policy update."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.schema import Recipe
from tasks.dataset.curriculum import observe, summarise
from tasks.rollout.choice import PASS_RATES, pass_rates
from tasks.rollout.samples import read_samples
from tasks.runtime.accelerator import Accelerator, vendor
from tasks.runtime.cluster import ask, find_actor, offered
from tasks.runtime.dispatch import stage
from tasks.runtime.files import read_json, write_json
from tasks.runtime.ledger import Receipt, Run, once
from tasks.update.environment import learner_environment
from tasks.update.metrics import batch_metrics
from tasks.update.rank import LearnerRank
from tasks.update.sharing import sharing_environment, take_turn

TIMEOUT = 3600.0  # Seconds that a cold start or an update may take, the replay that it may need included.
POLICY = "policy.json"
"""The receipt of the cold start, a file of step 0."""
MARGIN = 60.0  # Seconds by which a task waits less for its actors than it may take, to end with their names.
MEETING_TIMEOUT = 300.0  # Seconds for the ranks to meet; a rank that waits for a lost one is ended then.
BUSY_TIMEOUT = 1740.0  # Seconds that ranks may take to answer where an update may run.


def policy_folder(run: Run) -> str:
    """Return the folder of the policy that the updates start from, which the cold start left.

    Raises:
        UserError: it is gone.
    """
    folder = run.home / read_json(run.step_file(0, POLICY))["folder"]
    if not folder.is_dir():
        raise UserError(
            f"{folder}, the policy that {run.id} started from, is not there: put it back. A model of the hub lies "
            "where HF_HOME says"
        )
    return str(folder)


def learner_actors(run: Run) -> dict[str, tuple[type, dict[str, Any], dict[str, Any]]]:
    """Return the actors of a run's learner, one a rank, for `tasks.runtime.cluster.actors`."""
    recipe, accelerator = run.recipe, _accelerator(run)
    environment = learner_environment(recipe, accelerator) | sharing_environment(recipe, accelerator)
    gpus = 0 if recipe.engine.colocated else recipe.learner.gpus  # the engines hold them
    options = {"num_cpus": recipe.learner.cpus, "num_gpus": gpus, "runtime_env": {"env_vars": environment}}
    return {name: (LearnerRank, {"run": run, "rank": rank}, options) for rank, name in enumerate(_names(run.recipe))}


@stage(name="cold start", run_name="cold start", timeout=TIMEOUT)
def cold_start(run: Run, dataset: Receipt) -> Receipt:
    """Fine-tune the base policy on demonstrations, and write weights version 0.

    Returns:
        `path` of the policy in Hugging Face format and the `metrics` of the fit.
    """

    def make() -> Receipt:
        first = find_actor(run.id, _names(run.recipe)[0])
        (fitted,) = ask([first], "cold_start", dataset["model"], dataset, timeout=TIMEOUT - MARGIN)
        ask(learner_ranks(run), "save_weights", 0, fitted["path"], timeout=TIMEOUT - MARGIN)
        metrics = {f"cold_start/{name}": value for name, value in fitted["metrics"].items()}
        return {"folder": run.portable(fitted["path"]), "metrics": metrics}

    receipt = once(run.step_file(0, POLICY), make)
    return {"path": policy_folder(run), "metrics": receipt["metrics"]}


@stage(name="update policy", run_name="update step {step}", timeout=TIMEOUT)
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
        before: Receipt of the update before; updates go one after the other.
        scored: Receipts of the step's scored shards.
        after: Receipts of what has to be done before: the checkpoint before, what engines that share the learner's GPUs
            have to finish, or the weights that it sends.

    Returns:
        `version` of the new weights and the `metrics` of the samples and of the update.
    """
    paths = [shard["path"] for shard in scored]

    def make() -> Receipt:
        # The write-ahead log: from here on the update can be replayed.
        write_json(run.step_file(step, "batch.json"), {"scored": [Path(path).name for path in paths]})
        metrics, *_ = ask(learner_ranks(run), "update", step, policy["path"], paths, timeout=TIMEOUT - MARGIN)
        samples = read_samples(paths)
        if run.recipe.data.curriculum:
            rates = observe(pass_rates(run, step - 1), samples)
            write_json(run.step_file(step, PASS_RATES), rates)
            metrics |= summarise(rates, run.recipe.data.curriculum)
        return {"version": step, "metrics": {**batch_metrics(samples, step - 1), **metrics}}

    receipt = once(run.step_file(step, "update.json"), make)
    tokens, seconds = receipt["metrics"]["policy/tokens"], receipt["seconds"]
    receipt["metrics"] |= {"time/update": seconds, "perf/update_tokens_per_second": tokens / seconds}
    return receipt


@stage(name="save checkpoint", run_name="checkpoint {step}", timeout=TIMEOUT)
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
        ask(learner_ranks(run, step), "save_checkpoint", step, policy["path"], timeout=TIMEOUT - MARGIN)
        return {"version": update["version"]}

    return once(run.step_file(step, "checkpoint.json"), make)


def _accelerator(run: Run) -> Accelerator:
    return vendor(run.recipe.accelerator_type, offered()) if run.recipe.learner.gpus else "cpu"


def _names(recipe: Recipe) -> list[str]:
    return [f"learner-{rank}" for rank in range(recipe.learner.ranks)]


def learner_ranks(run: Run, version: int | None = None) -> list[Any]:
    """Return the learner's ranks, each with its GPU free, met in one process group where there are several.

    Args:
        run: The run.
        version: All that is wanted of the ranks, if that is weights. Where they have those in memory they need no room
            for a replay, and engines on their GPUs are left alone.
    """
    ranks = [find_actor(run.id, name) for name in _names(run.recipe)]
    if len(ranks) == 1 and not run.recipe.engine.colocated:
        return ranks  # with nobody to make room or to be met; if it is busy, it may be
    patience = MEETING_TIMEOUT if version is None else BUSY_TIMEOUT
    held = ask(ranks, "held", timeout=patience)
    if any(version not in own for own in held):
        take_turn(run, ranks, _accelerator(run))
    if len(ranks) > 1:
        groups = set(ask(ranks, "group", timeout=patience))
        if len(groups) > 1 or None in groups or len(set(held)) > 1:
            (address,) = ask(ranks[:1], "address", timeout=MEETING_TIMEOUT)
            ask(ranks, "join", address, len(ranks), timeout=MEETING_TIMEOUT)
    return ranks
