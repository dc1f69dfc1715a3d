"""Over-sampling: a step begins more groups than it needs, and the next step goes on with the unfinished ones.

So long responses don't delay a step, and none is lost. Every generated token is kept, with the weights version that
sampled it.
"""

from collections.abc import Sequence
from itertools import groupby

from tasks.records.question import Prompt
from tasks.records.samples import GIVEN_UP, UNFINISHED, SampleRow
from tasks.records.usable import flaw
from tasks.rollout.shard import NO_TOKENS, Sampling, begin, finished_groups


def take_up(
    carried: Sequence[SampleRow], places: Sequence[tuple[int, Prompt]], step: int, sampling: Sampling
) -> list[SampleRow]:
    """Return the samples that a step works on: first those that the previous step left, then new ones.

    Args:
        carried: Samples of whole groups that the previous step left, at most as many groups as places.
        places: The step's group numbers, each with the prompt to begin there if no carried group takes the place.
        step: The step.
        sampling: How to sample.
    """
    groups = [list(samples) for _, samples in groupby(carried, key=lambda row: row["group"])]
    taken = zip(places, groups, strict=False)
    going_on = [{**row, "step": step, "group": number} for (number, _), samples in taken for row in samples]
    return going_on + begin(places[len(groups) :], step, sampling)


def sound(row: SampleRow) -> SampleRow:
    """Return a carried sample; without its tokens if these can't be used."""
    if row["finish_reason"] == GIVEN_UP or not flaw(row["response_ids"], row["logprobs"], UNFINISHED, None, None):
        return row
    return {**row, **NO_TOKENS, "finish_reason": UNFINISHED, "text": ""}


def split_finished(rows: Sequence[SampleRow], wanted: int) -> tuple[list[SampleRow], list[SampleRow]]:
    """Return the samples of the first `wanted` finished groups, and the others, which the next step goes on with."""
    taken = set(finished_groups(rows)[:wanted])
    return [row for row in rows if row["group"] in taken], [row for row in rows if row["group"] not in taken]
