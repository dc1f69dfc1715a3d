"""What tests of the learner say again and again."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainer.batches.samples import Sample
from trainer.learner.learner import Learner

MakeSamples = Callable[..., list[Sample]]
KL = {"kl": {"coefficient": 0.1}}
LEARNER_IS_OLD = {"old_policy": "learner"}


def state(learner: Learner) -> dict[str, Tensor]:
    """A copy of all that is trained, and of its optimizers."""
    return {name: value.clone() for name, value in learner._state().items()}


def equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def scored(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.reward is not None]
