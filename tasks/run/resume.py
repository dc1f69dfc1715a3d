"""Resuming a run: which settings may change, and which files must be intact."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from configs.errors import UserError
from configs.loader import flatten, read_recipe
from configs.schema import Recipe
from tasks.run.directory import Run
from tasks.run.events import record
from tasks.run.identity import MAY_CHANGE, identity, may_change
from tasks.run.ledger import committed_steps, write_recipe
from tasks.run.verify import damaged_steps, is_learnt_from, unusable_samples
from trainer.files import read_json, remove, write_json
from trainer.state.manifest import damaged_checkpoint

Changes = dict[str, list[Any]]
"""By dotted key: the value before and the value from now on."""


@dataclass(frozen=True)
class Continuation:
    """How a run can go on: the recipe from now on, and what changed in it."""

    recipe: Recipe
    changes: Changes


def check_resume(run: Run, overrides: Sequence[str]) -> Continuation:
    """Return how a run can go on with some overrides.

    Raises:
        UserError: a setting that can't change in mid-run, fewer steps than are committed, or a damaged file that is
            needed to rebuild the learner.
    """
    recipe, changes = _changed(run, overrides)
    refused = [key for key in changes if not may_change(key)]
    if refused:
        raise UserError(
            f"{run.id} can't go on with another {', '.join(refused)}: its committed steps would not be what the recipe "
            f"says. Begin a new run for that. What may change: {', '.join(MAY_CHANGE)}"
        )
    if "steps" in changes and {recipe.optimizer.schedule, recipe.critic.schedule} != {"constant"}:
        raise UserError(
            f"{run.id} can't go on with another steps: its learning rates fall towards the last step, so those of the "
            "committed steps would have been others. Begin a new run for that"
        )
    done = max(committed_steps(run), default=0)
    if recipe.steps < done:
        raise UserError(f"steps={recipe.steps} is less than the {done} steps that {run.id} has committed")
    _check_replay(run)
    return Continuation(recipe, changes)


def go_on(run: Run, checked: Continuation) -> Run:
    """Return the run with changed settings: stored in `recipe.yaml`, and each change with its step in `run.json`."""
    changes = checked.changes
    if not changes:
        return run
    done = max(committed_steps(run), default=-1)
    identity = read_json(run.record)
    history = [*identity.get("changes", []), {"after_step": done, "changed": changes}]
    # The record comes first: after a crash in between, a change may be recorded twice, but is never missing.
    write_json(run.record, identity | {"changes": history})
    changed = replace(run, recipe=checked.recipe)
    write_recipe(changed)
    record(run.events, "changed", after_step=done, settings=changes)
    return changed


def discard_unusable(run: Run, vocabulary: Container[int] | None) -> None:
    """Remove the samples of steps that no update can take, so that the run makes them again.

    The samples of the steps after them may go on from theirs, and go with them. Samples that weights were made of stay:
    without them the learner could not be rebuilt.
    """
    open_steps = [step for step in run.steps_begun() if step > 0 and not is_learnt_from(run, step)]
    for step in open_steps:
        if found := unusable_samples(run, step, vocabulary):
            for later in open_steps[open_steps.index(step) :]:
                remove(run.step_file(later, ""))
            path, why = next(iter(found.items()))
            record(run.events, "samples discarded", step=step, why=f"{path.name}: {why}")
            return


def _changed(run: Run, overrides: Sequence[str]) -> tuple[Recipe, Changes]:
    """Return the run's recipe with overrides, and where it differs from the stored one."""
    recipe = read_recipe(run.recipe_file, overrides)
    before, after = flatten(run.recipe), flatten(recipe)
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return recipe, {key: [before.get(key), after.get(key)] for key in keys}


def _check_replay(run: Run) -> None:
    """Refuse to go on if the learner can't be rebuilt: it replays the steps after its newest checkpoint."""
    own = identity(run)
    whole = [version for version in run.checkpoints() if not damaged_checkpoint(run.checkpoint(version), own)]
    damaged = damaged_steps(run, after=max(whole, default=0))
    if damaged:
        raise UserError(
            f"{run.id} can't go on: {damaged[0]}. Its learner would replay that step. Put the file back, or begin a "
            f"new run; `rl-post verify {run.id}` lists all damage"
        )
