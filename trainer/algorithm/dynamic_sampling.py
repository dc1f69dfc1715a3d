"""Dynamic sampling (DAPO, arXiv 2503.14476, equation 11): sample on until enough groups have something to tell.

Nothing here imports PyTorch, so that a flow can decide by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from configs.errors import UserError


class NothingToLearn(UserError):
    """The rounds are used up, and too few groups have both right and wrong answers."""


@dataclass(frozen=True)
class Selected:
    """Groups of a step.

    Attributes:
        groups: ids of informative groups in the order in which they were sampled; never more than wanted.
        missing: groups that are still to be found.
    """

    groups: tuple[str, ...]
    missing: int


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
    return Selected(chosen, wanted - len(chosen))


def needs_another_round(selected: Selected, rounds: int, max_rounds: int) -> bool:
    """Whether to sample again after `rounds` rounds.

    Raises:
        NothingToLearn: if groups are missing, but the rounds are used up.
    """
    if selected.missing and rounds >= max_rounds:
        raise NothingToLearn(
            f"after {rounds} rollout rounds only {len(selected.groups)} of "
            f"{len(selected.groups) + selected.missing} groups have both right and wrong answers: the questions are "
            "too easy or too hard for this policy; change the data, raise rollout.samples_per_prompt or "
            "algorithm.dynamic_sampling.max_rounds"
        )
    return selected.missing > 0
