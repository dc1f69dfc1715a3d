"""What evaluations are worth: estimates with intervals, problems being the unit that was drawn.

Outcomes are given per problem, keyed by the problem's id: `{"q1": [1.0, 0.0, 1.0], …}`, each outcome in [0, 1].
Samples of one problem are not independent, so they are never pooled over problems: each problem counts once, by the
mean of its samples. Samples without a verdict are no outcomes, and a problem that has only such samples is no problem:
how many there were has to be said beside every number.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import fmean, pvariance
from typing import Any

from scipy.stats import norm

from tasks.records.samples import is_right

Outcomes = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Estimate:
    """A mean over `problems` problems and the interval [low, high] of the confidence asked for."""

    mean: float
    low: float
    high: float
    problems: int


def outcomes_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the outcomes of scored samples that have a verdict, by question."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if (verdict := is_right(row)) is not None:
            found[row["prompt_id"]].append(float(verdict))
    return dict(found)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k samples is right, estimated without bias from n samples with c right ones.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n: pass@k can't be told from fewer than k samples.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} right samples of {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} can't be estimated from {n} samples a problem")
    return 1.0 - comb(n - c, k) / comb(n, k)


def mean_pass_at_k(outcomes: Outcomes, k: int) -> float:
    """Mean over problems of each problem's pass@k; an outcome of 1.0 is right, any less isn't.

    Raises:
        ValueError: no problems, or one with fewer than k samples.
    """
    _require_outcomes(outcomes)
    return fmean(pass_at_k(len(samples), sum(x == 1.0 for x in samples), k) for samples in outcomes.values())


def accuracy(outcomes: Outcomes, confidence: float = 0.95) -> Estimate:
    """Mean over problems, with Wilson's score interval (Wilson 1927) at the effective number of samples.

    With one sample a problem that is the number of problems, and the interval is Wilson's own. With several it is
    m(1-m) / SE², the number of independent samples that would give the standard error seen between problems
    (Kish 1965, design effect), at most the number of samples. It is the number of problems again where all outcomes
    are equal and the standard error says nothing.

    Raises:
        ValueError: no problems, or one without samples.
    """
    _require_outcomes(outcomes)
    means = [fmean(samples) for samples in outcomes.values()]
    problems, mean = len(means), fmean(means)
    squared_error = pvariance(means) / problems
    size = float(problems)
    if 0.0 < mean < 1.0:
        samples = sum(map(len, outcomes.values()))
        size = min(mean * (1 - mean) / squared_error, samples) if squared_error > 0 else samples
    z = float(norm.ppf(0.5 + confidence / 2))
    centre = (mean + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * sqrt(mean * (1 - mean) / size + z**2 / (4 * size**2))
    return Estimate(mean, max(0.0, centre - half), min(1.0, centre + half), problems)


def paired_difference(before: Outcomes, after: Outcomes, confidence: float = 0.95) -> Estimate:
    """Mean over problems of after minus before, each problem compared with itself.

    The interval is the adjusted Wald interval for paired proportions (Bonett and Price 2012): two made-up problems,
    one won and one lost, are added before the standard error is taken. So it doesn't shrink to nothing where all
    problems changed alike.

    Raises:
        ValueError: no problems, or `before` and `after` hold different ones.
    """
    _require_outcomes(before)
    _require_outcomes(after)
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise ValueError(f"{len(odd)} problems were evaluated only once, e.g. {odd[0]}: both sides need the same ones")
    differences = [fmean(after[problem]) - fmean(before[problem]) for problem in before]
    adjusted = [*differences, 1.0, -1.0]
    half = float(norm.ppf(0.5 + confidence / 2)) * sqrt(pvariance(adjusted) / len(adjusted))
    centre = fmean(adjusted)
    return Estimate(fmean(differences), max(-1.0, centre - half), min(1.0, centre + half), len(differences))


def _require_outcomes(outcomes: Outcomes) -> None:
    empty = [problem for problem, samples in outcomes.items() if not samples]
    if empty or not outcomes:
        raise ValueError(f"problem {empty[0]} has no samples" if empty else "no problems to take a mean of")


def with_interval(metrics: Mapping[str, float], name: str) -> str:
    """Show an accuracy of a step's metrics with its 95 % interval: `0.860 [0.805, 0.901]`.

    Where not every answer could be scored, that is said.
    """
    if name not in metrics:
        return "no answer could be scored"
    shown = f"{metrics[name]:.3f} [{metrics[f'{name}_low']:.3f}, {metrics[f'{name}_high']:.3f}]"
    scored = metrics.get(f"{name}_scored", 1.0)  # Runs of before didn't say it.
    return shown if scored == 1.0 else f"{shown} ({scored:.1%} of the answers could be scored)"
