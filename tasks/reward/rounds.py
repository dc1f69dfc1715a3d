"""Dynamic sampling: rollout rounds of a step until enough groups have both right and wrong answers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from configs.schema import Recipe
from tasks.rollout.samples import Row, raw_accuracy
from tasks.runtime.dispatch import Call
from tasks.runtime.ledger import Receipt
from trainer.algorithm.dynamic_sampling import needs_another_round, select_groups

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


def accuracies(rows: Iterable[Row]) -> Accuracies:
    """Return the raw accuracies of scored samples, by group."""
    found: dict[str, list[float | None]] = defaultdict(list)
    for row in rows:
        found[str(row["group"])].append(raw_accuracy(row))
    return found


def learnt_from(recipe: Recipe, rows: Sequence[Row]) -> list[Row]:
    """Return the samples that an update takes: with dynamic sampling the first informative groups, else all."""
    if recipe.algorithm.dynamic_sampling is None:
        return list(rows)
    selected = select_groups(_in_order(accuracies(rows)), recipe.rollout.prompts_per_step)
    return [row for row in rows if str(row["group"]) in selected.groups]


def _in_order(found: Accuracies) -> Accuracies:
    """Sort groups as they were sampled, whatever shard they were in."""
    return dict(sorted(found.items(), key=lambda entry: int(entry[0])))
