"""The flow: dataset, cold start, then step by step rollout, reward, update, publication and evaluation.

Every stage is a Prefect task on Ray. The next step is submitted before the last one is committed, so that Ray starts
a task the moment its inputs exist; the edges between the tasks keep the rollouts strictly on-policy.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from configs.loader import load_recipe
from flows.projections import Projections
from flows.story import told
from tasks.dataset.task import prepare_dataset
from tasks.evaluate.task import evaluate
from tasks.reward.rounds import another_round
from tasks.reward.task import score_rewards
from tasks.rollout.task import engine_actors, generate_rollouts, publish_weights, start_engines
from tasks.runtime.cluster import actors, check_fit, needed, offered, ray_task_runner
from tasks.runtime.dispatch import Call, submit
from tasks.runtime.ledger import Receipt, Run, commit, committed_steps, create_run, home, open_run, run_of
from tasks.runtime.lock import Lock, hold
from tasks.runtime.metrics import step_metrics
from tasks.runtime.resume import changed_recipe, go_on
from tasks.update.task import cold_start, learner_actors, update_policy


@flow(name="rl-post", flow_run_name="{recipe}", task_runner=ray_task_runner(), persist_result=False)
def rl_post(recipe: str = "r1", overrides: list[str] | None = None, resume: str | None = None) -> dict[str, Any]:
    """Post-train a language model by reinforcement learning.

    Args:
        recipe: Name of a recipe in `configs/`, or the path of a YAML file.
        overrides: Settings that differ from the recipe, each `section.key=value`.
        resume: A run to go on with, by its id; the recipe is then the run's own. A flow run that Prefect runs again
            goes on with the run that it began.
    """
    run = _open(recipe, overrides or [], resume)
    with hold(run) as lock:
        return _train(go_on(run, overrides or [] if resume else []), lock)


def _train(run: Run, lock: Lock) -> dict[str, Any]:
    with told(run), Projections(run) as projections, actors(run.id, engine_actors(run) | learner_actors(run)):
        dataset = submit(prepare_dataset, run=run)
        policy = submit(cold_start, run=run, dataset=dataset)
        engines = submit(start_engines, run=run, dataset=dataset)
        projections.start(dataset.result())

        last = _begin(run, dataset, policy, engines)
        for number in range(last.number + 1, run.recipe.steps + 1):
            ahead = _submit_step(run, number, dataset, policy, last)
            projections.project(_commit(run, last, lock))
            last = ahead
        projections.project(_commit(run, last, lock))
        return projections.finish()


@dataclass(frozen=True)
class Step:
    """The submitted tasks of a step. Step 0 has only weights and their evaluation."""

    number: int
    weights: Call[Receipt]
    evaluation: Call[Receipt] | None
    update: Call[Receipt]
    scored: list[Call[Receipt]] = field(default_factory=list)


def _open(recipe: str, overrides: list[str], resume: str | None) -> Run:
    """Open the run to resume, or begin a new one, if the cluster can hold it."""
    begun = open_run(home(), resume) if resume else run_of(home(), flow_run.id)
    if begun:
        changed, _ = changed_recipe(begun, overrides if resume else [])
        check_fit(needed(changed), offered())
        return begun
    resolved = load_recipe(recipe, overrides, gpus=int(offered().get("GPU", 0)))
    check_fit(needed(resolved), offered())
    return create_run(home(), resolved, flow_run.id)


def _begin(run: Run, dataset: Call[Receipt], policy: Call[Receipt], engines: Call[Receipt]) -> Step:
    """Bring the engines to the last committed weights: version 0 in a new run."""
    number = max(committed_steps(run), default=0)
    weights = submit(publish_weights, run=run, version=number, after=[policy, engines])
    return Step(number, weights, _evaluation(run, number, dataset, weights), update=policy)


def _submit_step(run: Run, number: int, dataset: Call[Receipt], policy: Call[Receipt], last: Step) -> Step:
    """Submit a step: its samples come from the weights of the step before."""
    scored = _sample(run, number, dataset, last.weights)
    update = submit(update_policy, run=run, step=number, policy=policy, scored=scored)
    # The engines keep the old weights until those are evaluated.
    weights = submit(publish_weights, run=run, version=number, after=[update, last.evaluation])
    return Step(number, weights, _evaluation(run, number, dataset, weights), update, scored)


def _sample(run: Run, number: int, dataset: Call[Receipt], weights: Call[Receipt]) -> list[Call[Receipt]]:
    """Submit rollout and reward of a step's shards; with dynamic sampling, round after round until there is enough."""
    scored: list[Call[Receipt]] = []
    shards = run.recipe.rollout.shards
    for rounds in count(1):
        for shard in range(len(scored), rounds * shards):
            samples = submit(generate_rollouts, run=run, step=number, shard=shard, dataset=dataset, weights=weights)
            scored.append(submit(score_rewards, run=run, step=number, shard=shard, samples=samples))
        if not another_round(run.recipe, rounds, scored):
            break
    return scored


def _evaluation(run: Run, number: int, dataset: Call[Receipt], weights: Call[Receipt]) -> Call[Receipt] | None:
    due = number % run.recipe.evaluation.every == 0 or number == run.recipe.steps
    return submit(evaluate, run=run, version=number, dataset=dataset, weights=weights) if due else None


def _commit(run: Run, step: Step, lock: Lock) -> int:
    """Wait for a step's tasks and commit it, if the run is still this driver's."""
    scored = [shard.result() for shard in step.scored]
    update, weights = step.update.result(), step.weights.result()
    evaluation = step.evaluation.result() if step.evaluation else None
    lock.check()
    commit(run, step.number, step_metrics(scored, update, weights, evaluation))
    return step.number
