"""Over-sampling: a step begins more groups than it takes, and the next one goes on with those that were not finished.

So long responses don't hold a step, and none is lost for being long: what was generated stays, token by token with the
weights version that made it.
"""

from collections.abc import Sequence
from itertools import groupby

from tasks.records.question import Prompt
from tasks.records.samples import SampleRow
from tasks.rollout.shard import Sampling, begin, finished_groups


def take_up(
    carried: Sequence[SampleRow], places: Sequence[tuple[int, Prompt]], step: int, sampling: Sampling
) -> list[SampleRow]:
    """Return the samples that a step works on: those of the step before in the first places, new ones in the others.

    Args:
        carried: Samples of whole groups that the step before left, at most as many groups as places.
        places: The numbers of the step's groups, each with the prompt that is begun there if the place is free.
        step: The step.
        sampling: How to sample.
    """
    groups = [list(samples) for _, samples in groupby(carried, key=lambda row: row["group"])]
    taken = zip(places, groups, strict=False)
    going_on = [{**row, "step": step, "group": number} for (number, _), samples in taken for row in samples]
    return going_on + begin(places[len(groups) :], step, sampling)


def split_finished(rows: Sequence[SampleRow], wanted: int) -> tuple[list[SampleRow], list[SampleRow]]:
    """Return the samples of the first `wanted` groups that are finished, and those that the next step goes on with."""
    taken = set(finished_groups(rows)[:wanted])
    return [row for row in rows if row["group"] in taken], [row for row in rows if row["group"] not in taken]
