"""A figure of one or several runs: reward of each step's samples and accuracy on held-out questions."""

from collections.abc import Mapping
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

History = Mapping[int, Mapping[str, float]]
"""Metrics by name, by step."""

ACCURACIES = {"greedy": "-", "sampled": "--"}
"""Evaluations and the line that each is drawn with."""


def draw_curves(title: str, histories: Mapping[str, History]) -> Figure:
    """Draw runs by label: left the mean reward a step, right the held-out accuracies with their 95 % intervals."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for index, (label, history) in enumerate(histories.items()):
        _plot(left, history, "reward/mean", f"C{index}", "-", label)
    for (index, (label, history)), (kind, style) in product(enumerate(histories.items()), ACCURACIES.items()):
        _plot(right, history, f"eval/heldout/{kind}_accuracy", f"C{index}", style, f"{kind}, {label}")
    left.set(xlabel="step", ylabel="mean reward of the step's samples", title=f"{title}: reward")
    right.set(xlabel="step", ylabel="held-out accuracy", title=f"{title}: accuracy (95 % interval)", ylim=(0, 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure


def _plot(axes: Axes, history: History, name: str, colour: str, style: str, label: str) -> None:
    points = [(step, metrics) for step, metrics in history.items() if name in metrics]
    steps = [step for step, _ in points]
    axes.plot(steps, [metrics[name] for _, metrics in points], style, color=colour, label=label)
    if all(f"{name}_low" in metrics for _, metrics in points):
        low, high = ([metrics[f"{name}_{end}"] for _, metrics in points] for end in ("low", "high"))
        axes.fill_between(steps, low, high, color=colour, alpha=0.12)
