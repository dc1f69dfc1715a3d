"""Dynamic sampling: rollout rounds of a step until enough groups have both right and wrong answers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from configs.errors import UserError
from configs.schema import Recipe
from tasks.orchestrator.dispatch import Call
from tasks.records.samples import SampleRow, raw_accuracy
from tasks.run.ledger import Receipt

Accuracies = Mapping[str, Sequence[float | None]]
"""Raw accuracies of a group's samples, by the group's number as text."""


def another_round(recipe: Recipe, rounds: int, scored: Sequence[Call[Receipt]]) -> bool:
    """Tell whether a step has to sample again after some rounds; waits for their scores only with dynamic sampling.

    Raises:
        NothingToLearn: the rounds are used up, and groups are missing.
    """
    dynamic = recipe.algorithm.dynamic_sampling
    if dynamic is None:
        return False
    known: dict[str, Sequence[float | None]] = {}
    for shard in scored:
        known |= shard.result()["accuracies"]
    selected = select_groups(_in_order(known), recipe.rollout.prompts_per_step)
    return needs_another_round(selected, rounds, dynamic.max_rounds)


def accuracies(rows: Iterable[SampleRow]) -> Accuracies:
    """Return the raw accuracies of scored samples, by group; None of a sample that the update has no reward of.

    Where another part of the reward failed, the accuracy is known, but the sample teaches nothing.
    """
    found: dict[str, list[float | None]] = defaultdict(list)
    for row in rows:
        found[str(row["group"])].append(None if row["reward"] is None else raw_accuracy(row))
    return found


def learnt_from(recipe: Recipe, rows: Sequence[SampleRow]) -> list[SampleRow]:
    """Return the samples that an update takes: with dynamic sampling the first informative groups, else all."""
    if recipe.algorithm.dynamic_sampling is None:
        return list(rows)
    selected = select_groups(_in_order(accuracies(rows)), recipe.rollout.prompts_per_step)
    return [row for row in rows if str(row["group"]) in selected.groups]


def _in_order(found: Accuracies) -> Accuracies:
    """Sort groups as they were sampled, whatever shard they were in."""
    return dict(sorted(found.items(), key=lambda entry: int(entry[0])))


class NothingToLearn(UserError):
    """The rounds are used up, and too few groups have both right and wrong answers."""


@dataclass(frozen=True)
class Selected:
    """Groups of a step.

    Attributes:
        groups: ids of informative groups in the order in which they were sampled; never more than wanted.
        missing: groups that are still to be found.
        unscored: samples of all groups that could not be scored.
    """

    groups: tuple[str, ...]
    missing: int
    unscored: int = 0


def informative(accuracies: Sequence[float | None]) -> bool:
    """Whether a group's raw accuracies, None for unknown, differ. Shaped rewards don't tell: they may always differ."""
    return len({accuracy for accuracy in accuracies if accuracy is not None}) > 1


def select_groups(accuracies: Mapping[str, Sequence[float | None]], wanted: int) -> Selected:
    """Choose the first `wanted` informative groups of all rounds so far, so that a step has its configured size.

    Args:
        accuracies: raw accuracies of each group's samples, by group id, in the order of sampling.
        wanted: groups of a step.
    """
    chosen = tuple(group for group, values in accuracies.items() if informative(values))[:wanted]
    unscored = sum(accuracy is None for values in accuracies.values() for accuracy in values)
    return Selected(chosen, wanted - len(chosen), unscored)


def needs_another_round(selected: Selected, rounds: int, max_rounds: int) -> bool:
    """Whether to sample again after `rounds` rounds.

    Raises:
        NothingToLearn: if groups are missing, but the rounds are used up.
    """
    if selected.missing and rounds >= max_rounds:
        lost = f" ({selected.unscored} samples could not be scored: look at the reward first)"
        raise NothingToLearn(
            f"after {rounds} rollout rounds only {len(selected.groups)} of "
            f"{len(selected.groups) + selected.missing} groups have both right and wrong answers"
            f"{lost if selected.unscored else ''}: the questions are "
            "too easy or too hard for this policy; change the data, raise rollout.samples_per_prompt or "
            "algorithm.dynamic_sampling.max_rounds"
        )
    return selected.missing > 0
