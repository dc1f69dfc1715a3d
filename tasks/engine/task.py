"""The engines' actors, and the task that starts their servers."""

from pathlib import Path

from tasks.cluster.devices import vendor
from tasks.cluster.limits import limits_of
from tasks.cluster.placement import actor_name
from tasks.engine.engine import Engine
from tasks.orchestrator.dispatch import stage
from tasks.processes.actors import ActorSpec, ask, engines
from tasks.processes.nodes import offered
from tasks.run.directory import Run
from tasks.run.ledger import Receipt

# What an engine reports until the first weights are published: the model before the cold start.
BASE_VERSION = -1


def engine_actors(run: Run) -> dict[str, ActorSpec]:
    """Return the actors of a run's engines for `tasks.processes.actors.actors`."""
    settings = run.recipe.engine
    options = {"num_cpus": settings.cpus, "num_gpus": settings.gpus}
    accelerator = vendor(run.recipe.accelerator_type, offered()) if settings.gpus else "cpu"
    return {
        actor_name("engine", index): (
            Engine,
            {"index": index, "recipe": run.recipe, "log_dir": run.logs, "accelerator": accelerator},
            options,
        )
        for index in range(settings.count)
    }


@stage(name="start engines", run_name="start engines", limit=lambda limits: limits.start_engines)
def start_engines(run: Run, dataset: Receipt) -> Receipt:
    """Start every engine with the model as it was before the cold start, which runs meanwhile.

    Engines that share the learner's GPUs start after the cold start, with the first published weights.

    Returns:
        `urls` of the engines.
    """
    if run.recipe.engine.colocated:
        return {"urls": []}
    return {"urls": ask(engines(run), "start", Path(dataset["model"]), BASE_VERSION, timeout=limits_of(run).engine)}
