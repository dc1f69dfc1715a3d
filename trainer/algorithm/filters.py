"""Which samples take part. All tensors are [N]: one entry a sample."""

from dataclasses import dataclass

import torch
from torch import Tensor

from configs.algorithm import Filters
from trainer.algorithm.advantages import constant_groups


@dataclass(frozen=True)
class Selection:
    """Result of the filters.

    Attributes:
        takes_part: bool; counts in baselines and deviations.
        trained: bool; its tokens are learnt from. Never without taking part.
        counts: dropped or masked samples by reason; each sample counts once.
        rejected: bool; as whole sequences: these do neither, but count in the loss's mean.
    """

    takes_part: Tensor
    trained: Tensor
    counts: dict[str, float]
    rejected: Tensor


def select(
    rewards: Tensor,
    correctness: Tensor,
    groups: Tensor,
    truncated: Tensor,
    lags: Tensor,
    settings: Filters,
    rejected: Tensor | None = None,
) -> Selection:
    """Apply the filters one after another: not scored, stale, truncated, rejected, of a group that tells nothing.

    Args:
        rewards: float; NaN or infinite means not scored.
        correctness: float; what tells whether a group is informative (DAPO, arXiv 2503.14476, equation 11): raw
            accuracies, since shaped rewards of equally right answers differ.
        groups: int64 ids.
        truncated: bool; cut at the token limit.
        lags: int64; versions between the weights that sampled and the learner's.
        settings: what to filter.
        rejected: bool; the correction rejects the whole sequence: the sample is not one of this policy's, and would
            move its group's mean and deviation. None rejects none.
    """
    takes_part = rewards.isfinite()
    counts = {"unscored": _count(~takes_part)}
    stale = takes_part & (lags > settings.max_lag) if settings.max_lag is not None else torch.zeros_like(takes_part)
    takes_part = takes_part & ~stale
    cut = takes_part & truncated if settings.truncated != "keep" else torch.zeros_like(takes_part)
    if settings.truncated == "drop":
        takes_part = takes_part & ~cut
    out = torch.zeros_like(takes_part) if rejected is None else takes_part & rejected
    takes_part, out = takes_part & ~out, out & ~cut
    uninformative = torch.zeros_like(takes_part)
    if settings.zero_variance:
        uninformative[takes_part] = constant_groups(correctness[takes_part], groups[takes_part])
        takes_part = takes_part & ~uninformative
        out = out & ~torch.isin(groups, groups[uninformative])
    counts |= {"stale": _count(stale), "truncated": _count(cut), "zero_variance": _count(uninformative & ~cut)}
    if rejected is not None:
        counts["rejected"] = _count(out)
    return Selection(takes_part, takes_part & ~cut, counts, out)


def _count(samples: Tensor) -> float:
    return float(samples.sum())
