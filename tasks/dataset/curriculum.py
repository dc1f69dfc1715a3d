"""How much a prompt is worth now, by how often its last samples were right.

The pass rates are a function of the scored samples in the ledger, so a resumed run finds them as they were. A step may
only use samples of steps that were committed before it was submitted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from configs.data import Curriculum
from tasks.records.samples import is_right

# Small enough that a prompt out of the range is drawn only when the others run out.
_LEFT_OUT = 1e-9


def observe(rates: Mapping[str, float], samples: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the pass rates after one more step.

    Args:
        rates: Pass rate in [0, 1] by prompt id, as of the steps before.
        samples: The step's scored samples, each with `prompt_id` and `status`. Samples without a verdict (unscorable,
            timeout, error) don't count.

    Returns:
        The rates with those of the step's prompts replaced: the policy has changed since they were measured.
    """
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        if (verdict := is_right(sample)) is not None:
            outcomes[sample["prompt_id"]].append(verdict)
    return dict(rates) | {prompt: sum(right) / len(right) for prompt, right in outcomes.items()}


def summarise(rates: Mapping[str, float], curriculum: Curriculum) -> dict[str, float]:
    """Return metrics of the pass rates: of how many prompts there is one, their mean, and the share in the range.

    While there is none, there is no mean and no share.
    """
    known = list(rates.values())
    counted = {"rollout/pass_rate_prompts": float(len(known))}
    if not known:
        return counted
    in_range = fmean(curriculum.low <= rate <= curriculum.high for rate in known)
    return counted | {"rollout/pass_rate_mean": fmean(known), "rollout/pass_rate_in_range_share": in_range}


def weigh(prompt_ids: Sequence[str], rates: Mapping[str, float], curriculum: Curriculum) -> list[float]:
    """Return the weight of each prompt, in (0, 1]; see `configs.data.Curriculum`. One never sampled weighs 1."""
    return [_weight(rates[prompt], curriculum) if prompt in rates else 1.0 for prompt in prompt_ids]


def _weight(rate: float, curriculum: Curriculum) -> float:
    if not curriculum.low <= rate <= curriculum.high:
        return _LEFT_OUT
    return curriculum.floor + (1 - curriculum.floor) * 4 * rate * (1 - rate)
