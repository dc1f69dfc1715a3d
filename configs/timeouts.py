"""How long something may take before it is ended, named and tried again."""

from typing import Annotated

from pydantic import Field

from configs.section import Section

Seconds = Annotated[float, Field(gt=0)]
Derived = Seconds | None
"""A limit that follows from the work if the recipe does not say it: see `tasks/cluster/limits.py`."""


class Timeouts(Section):
    """Seconds. None follows from the work; `rl-post plan` says what came out. How long a sample may be scored is a
    setting of its reward, since it decides the reward."""

    dataset: Derived = Field(default=None, description="An attempt to fetch the model and prepare the prompts.")
    cold_start: Derived = Field(default=None, description="An attempt at the cold start.")
    start_engines: Derived = Field(default=None, description="An attempt to start the engines.")
    rollout: Derived = Field(default=None, description="An attempt at the rollout of a shard.")
    reward: Derived = Field(default=None, description="An attempt to score a shard.")
    update: Derived = Field(default=None, description="An attempt at an update, with the replay that it may need.")
    checkpoint: Derived = Field(default=None, description="An attempt at a checkpoint.")
    publish: Derived = Field(default=None, description="An attempt to bring the engines to a weights version.")
    evaluate: Derived = Field(default=None, description="An attempt at an evaluation.")
    archive: Derived = Field(default=None, description="An attempt to bring the run's copy up to date.")

    engine_start: Derived = Field(default=None, description="Until a server that was started answers.")
    request: Derived = Field(default=None, description="Until an engine has answered a request.")
    hang: Annotated[float, Field(ge=4.0)] | None = Field(
        default=None,
        description="Without a sign of life of a server, while it loads weights too, until it is ended and replaced.",
    )
    bucket: Derived = Field(default=None, description="Until engines have loaded a bucket of weights from memory.")

    answer: Seconds = Field(
        default=300.0,
        description="Until a process that has nothing else to do answers, its start and imports on a busy machine "
        "included: an actor, a node, a worker.",
    )
    connect: Seconds = Field(default=10.0, description="Until a server that runs answers that it is there.")
    resources: Seconds = Field(
        default=120.0, description="Until what other runs hold of the cluster, or a dead driver held, is free."
    )
    service: Seconds = Field(default=180.0, description="Until a Prefect or MLflow server that was started answers.")
    away: Seconds = Field(
        default=600.0,
        description="That a server may be away: Prefect's, while a crash is told to it, or one that gives marks.",
    )
    silence: Seconds = Field(
        default=30.0, description="Without a sign of life of a driver on another machine, until its run may be taken."
    )
    stop: Seconds = Field(default=20.0, description="That processes have to end by themselves before they are killed.")
    grace: Seconds = Field(default=2.0, description="The same of a server that has nothing to save.")
