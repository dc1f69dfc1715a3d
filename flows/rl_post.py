"""The flow: dataset, cold start, then step by step rollout, reward, update, publication and evaluation.

Every stage is a Prefect task on Ray. The next step is submitted before the last one is committed, so that Ray starts a
task the moment its inputs exist. The edges between the tasks decide which weights a step samples from. With
`pipeline.max_staleness: 0` they are those that the step updates. With s they are s updates older, and the rollout runs
beside the updates of the s steps before.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from configs.loader import load_recipe
from configs.schema import Recipe
from flows.projections import Projections
from tasks.archive.store import opened
from tasks.dataset.task import prepare_dataset
from tasks.engine.task import engine_actors, start_engines
from tasks.evaluate.task import evaluate
from tasks.orchestrator.dispatch import Call, submit
from tasks.orchestrator.task_runner import ray_task_runner
from tasks.processes.actors import actors
from tasks.processes.nodes import check_fits, offered
from tasks.processes.preflight import check_nodes
from tasks.processes.reservation import reserved
from tasks.reward.dynamic_sampling import another_round
from tasks.reward.task import score_rewards
from tasks.rollout.task import generate_rollouts, vocabulary_of
from tasks.run.directory import Run, home
from tasks.run.events import story
from tasks.run.ledger import Receipt, commit, committed_steps, create_run, forget_weights, run_of
from tasks.run.lock import Lock, hold
from tasks.run.resume import check_resume, discard_unusable, go_on
from tasks.run.step_metrics import step_metrics
from tasks.update.task import cold_start, learner_actors, save_checkpoint, update_policy
from tasks.weights.task import publish_weights


@flow(name="rl-post", flow_run_name="{recipe}", task_runner=ray_task_runner(), persist_result=False)
def rl_post(recipe: str = "r1", overrides: list[str] | None = None, resume: str | None = None) -> dict[str, Any]:
    """Post-train a language model by reinforcement learning.

    Args:
        recipe: Name of a recipe in `configs/`, or the path of a YAML file.
        overrides: Settings that differ from the recipe, each `section.key=value`.
        resume: A run to go on with, by its id or the address of its copy; the recipe is then the run's
            own. A flow run that Prefect runs again goes on with the run that it began.
    """
    begun = opened(home(), resume) if resume else run_of(home(), flow_run.id)
    if begun is None:
        wanted = load_recipe(recipe, overrides or [], gpus=int(offered().get("GPU", 0)))
        _check_cluster(wanted)
        run = create_run(home(), wanted, flow_run.id)
        with hold(run) as lock:
            return _train(run, lock)
    with hold(begun) as lock:
        checked = check_resume(begun, overrides or [] if resume else [])
        _check_cluster(checked.recipe)
        discard_unusable(begun, vocabulary_of(begun))
        return _train(go_on(begun, checked), lock)


def _train(run: Run, lock: Lock) -> dict[str, Any]:
    with (
        story(run),
        Projections(run) as projections,
        reserved(run.recipe) as seats,
        actors(run, engine_actors(run) | learner_actors(run), seats),
    ):
        dataset = submit(prepare_dataset, run=run)
        projections.start(dataset.result())  # Now the model is here: the next tasks' limits depend on its size.
        policy = submit(cold_start, run=run, dataset=dataset)
        engines = submit(start_engines, run=run, dataset=dataset)

        staleness = run.recipe.pipeline.max_staleness
        # The first new steps sample from weights of committed steps. Their tasks find what they made before.
        first = max(0, max(committed_steps(run), default=0) - staleness)
        published = deque([_publish(run, Step(first, update=policy), dataset, after=[engines])])
        ahead: deque[Step] = deque()
        scored: list[Call[Receipt]] = []

        def publish_next() -> None:
            # The engines keep a version until the last rollout that samples from it is scored and it is evaluated.
            users = [published[-1].weights, *scored, published[-1].evaluation]
            sender = _work_before_sending(run, ahead[-1])
            published.append(_publish(run, ahead.popleft(), dataset, after=[*users, *sender]))

        def commit_all_but(latest: int) -> None:
            while len(published) > latest:
                projections.project(_commit(run, published.popleft(), lock))

        for number in range(first + 1, run.recipe.steps + 1):
            before = ahead[-1] if ahead else published[-1].step
            scored = _sample(run, number, dataset, published[-1].weights, before.scored)
            if len(ahead) == staleness > 0:
                publish_next()
            ahead.append(_update(run, number, policy, before, scored, published[-1]))
            if staleness == 0:
                publish_next()
            commit_all_but(1)
        while ahead:
            publish_next()
            commit_all_but(1)
        commit_all_but(0)
        return projections.finish()


@dataclass(frozen=True)
class Step:
    """The submitted tasks that make a weights version. Step 0's is the cold start."""

    number: int
    update: Call[Receipt]
    scored: list[Call[Receipt]] = field(default_factory=list)
    checkpoint: Call[Receipt] | None = None


@dataclass(frozen=True)
class Published:
    """A step whose weights go to the engines, where they are evaluated if that is due."""

    step: Step
    weights: Call[Receipt]
    evaluation: Call[Receipt] | None


def _check_cluster(recipe: Recipe) -> None:
    """Refuse a recipe that the cluster can't hold, and nodes that are not ready, before anything starts."""
    check_fits(recipe)
    check_nodes(recipe)


def _update(
    run: Run, number: int, policy: Call[Receipt], before: Step, scored: list[Call[Receipt]], published: Published
) -> Step:
    """Submit the update of a step's samples, which goes on from the step before, and its checkpoint if that is due."""
    # Engines that share the learner's GPUs give them up for the update. First they answer the evaluation.
    evaluation = published.evaluation if run.recipe.engine.colocated else None
    # The learner does one thing at a time. Rollouts wait for its weights, so it sends them before it updates again.
    sent = published.weights if run.recipe.versions_kept else None
    edges = {"before": before.update, "scored": scored, "after": [before.checkpoint, evaluation, sent]}
    update = submit(update_policy, run=run, step=number, policy=policy, **edges)
    due = run.recipe.checkpoints(number)
    checkpoint = submit(save_checkpoint, run=run, step=number, policy=policy, update=update) if due else None
    return Step(number, update, scored, checkpoint)


def _sample(
    run: Run, step: int, dataset: Call[Receipt], weights: Call[Receipt], before: list[Call[Receipt]]
) -> list[Call[Receipt]]:
    """Submit rollout and reward of a step's shards; with dynamic sampling, round after round until there is enough."""
    scored: list[Call[Receipt]] = []
    shards = run.recipe.rollout.shards
    for rounds in count(1):
        for shard in range(len(scored), rounds * shards):
            of = {"run": run, "step": step, "shard": shard}
            samples = submit(generate_rollouts, **of, dataset=dataset, weights=weights, before=before)
            scored.append(submit(score_rewards, **of, samples=samples))
        if not another_round(run.recipe, rounds, scored):
            break
    return scored


def _work_before_sending(run: Run, latest: Step) -> list[Call[Receipt] | None]:
    """Return what the learner has to finish before it can send weights; engines read those on the disk themselves."""
    return [] if run.recipe.weight_sync.via == "disk" else [latest.update, latest.checkpoint]


def _publish(run: Run, step: Step, dataset: Call[Receipt], after: list[Call[Receipt] | None]) -> Published:
    """Submit the publication of a step's weights, and their evaluation if it is due."""
    version = step.number
    weights = submit(publish_weights, run=run, version=version, after=[step.update, *after])
    due = run.recipe.evaluates(version)
    evaluation = submit(evaluate, run=run, version=version, dataset=dataset, weights=weights) if due else None
    return Published(step, weights, evaluation)


def _commit(run: Run, published: Published, lock: Lock) -> int:
    """Wait for a step's tasks and commit it, if the run is still this driver's."""
    step = published.step
    scored = [shard.result() for shard in step.scored]
    update, weights = step.update.result(), published.weights.result()
    evaluation = published.evaluation.result() if published.evaluation else None
    checkpoint = step.checkpoint.result() if step.checkpoint else None
    lock.check()
    commit(run, step.number, step_metrics(run.recipe.rollout.shards, scored, update, weights, evaluation, checkpoint))
    forget_weights(run, before=step.number - run.recipe.pipeline.max_staleness)
    return step.number
