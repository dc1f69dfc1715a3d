"""What makes a run the one that it is: the settings that decide what a step computes, and its data."""

from fnmatch import fnmatch

from configs.loader import flatten
from configs.schema import Recipe
from tasks.run.directory import Run
from trainer.files import digest, read_json

MAY_CHANGE = (
    "steps",
    "evaluation.every",
    "tracking.*",
    "archive",
    "accelerator_type",
    "engine.*",
    "weight_sync.*",
    "timeouts.*",
    "learner.cpus",
    "learner.gpus",
    "learner.ranks",
    "learner.threads",
    "learner.checkpoint_every",
)
"""Settings that don't change what a step computes, except for the rounding of sums. Others make it another run."""


def may_change(key: str) -> bool:
    """Tell whether a setting, by its dotted key, may differ from when the run began."""
    return any(fnmatch(key, allowed) for allowed in MAY_CHANGE)


def identity(run: Run) -> str:
    """Return a hash of recipe and dataset, 16 hexadecimal digits, which stays the same when a run is resumed.

    Settings with their default value are left out. So a new setting in a later version of this project changes no hash.
    """
    defaults = flatten(Recipe(name=""))
    settings = {key: value for key, value in flatten(run.recipe).items() if value != defaults.get(key)}
    dataset = run.dataset
    return digest(
        {
            "recipe": {key: value for key, value in settings.items() if not may_change(key)},
            "dataset": read_json(dataset)["digest"] if dataset.exists() else None,
        }
    )
