"""Learning curves of a recipe: runs it by the front door, once a seed, and keeps what came out.

    python benchmarks/learning.py r1 --seeds 0 1 2
    python benchmarks/learning.py smollm2

Writes benchmarks/<recipe>.json (machine, command, numbers), .md (a table) and .png (the curves).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tasks.evaluate.statistics import Outcomes, paired_difference
from tasks.rollout.samples import read_samples
from tasks.runtime.ledger import Run, committed_steps, home, open_run, read_commit
from tasks.runtime.tracking import git_commit

HERE = Path(__file__).parent
KINDS = ("greedy", "sampled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    results = [measure(arguments.recipe, seed, arguments.overrides) for seed in arguments.seeds]
    report = {
        "command": " ".join(["python", *sys.argv]),
        "commit": git_commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "runs": results,
    }
    target = HERE / arguments.recipe
    target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    target.with_suffix(".md").write_text(table(arguments.recipe, report))
    draw(arguments.recipe, results, target.with_suffix(".png"))
    print(target.with_suffix(".md").read_text())


def measure(recipe: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Run a recipe and read its ledger."""
    before = set((home() / "runs").glob("*"))
    start = time.perf_counter()
    command = [str(Path(sys.executable).parent / "rl-post"), "run", recipe, f"seed={seed}", *overrides]
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    (root,) = set((home() / "runs").glob("*")) - before
    run = open_run(home(), root.name)
    steps = committed_steps(run)
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "steps": {step: read_commit(run, step)["metrics"] for step in steps},
        "gain": {kind: gain(run, kind, steps[-1]) for kind in KINDS},
    }


def gain(run: Run, kind: str, last: int) -> dict[str, float]:
    """Return the difference of accuracy between the last weights and the first, question by question."""

    def outcomes(step: int) -> Outcomes:
        found: dict[str, list[float]] = {}
        for row in read_samples([run.step_file(step, f"eval-{kind}.parquet")]):
            found.setdefault(row["prompt_id"], []).append(float(row["status"] == "right"))
        return found

    difference = paired_difference(outcomes(0), outcomes(last))
    return {"mean": difference.mean, "low": difference.low, "high": difference.high}


def table(recipe: str, report: dict[str, Any]) -> str:
    """Return the report as Markdown: accuracy before and after with 95 % intervals, and the whole run's time."""
    lines = [
        f"# Learning curves of `{recipe}`",
        "",
        f"`{report['command']}` on {report['machine']}, commit {report['commit'][:10]}.",
        "",
        "| seed | answers | before | after | gain | steps | whole run (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in report["runs"]:
        steps = run["steps"]
        for kind in KINDS:
            before, after = (interval(steps[step], kind) for step in (min(steps), max(steps)))
            won = run["gain"][kind]
            difference = f"{won['mean']:+.3f} [{won['low']:+.3f}, {won['high']:+.3f}]"
            lines.append(
                f"| {run['seed']} | {kind} | {before} | {after} | {difference} | {max(steps)} | {run['seconds']:.0f} |"
            )
    lines += ["", f"![curves]({recipe}.png)", ""]
    return "\n".join(lines)


def interval(metrics: dict[str, float], kind: str) -> str:
    name = f"eval/heldout/{kind}_accuracy"
    return f"{metrics[name]:.3f} [{metrics[f'{name}_low']:.3f}, {metrics[f'{name}_high']:.3f}]"


def draw(recipe: str, runs: list[dict[str, Any]], target: Path) -> None:
    """Draw mean reward a step, and held-out accuracies with their intervals."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for index, run in enumerate(runs):
        colour, label = f"C{index}", f"seed {run['seed']}"
        plot_metric(left, run["steps"], "reward/mean", colour, "-", label)
        for kind, style in (("greedy", "-"), ("sampled", "--")):
            plot_metric(right, run["steps"], f"eval/heldout/{kind}_accuracy", colour, style, f"{kind}, {label}")
    left.set(xlabel="step", ylabel="mean reward of the step's samples", title=f"{recipe}: reward", ylim=(0, 1))
    right.set(xlabel="step", ylabel="held-out accuracy", title=f"{recipe}: accuracy (95 % interval)", ylim=(0, 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(target, dpi=110)


def plot_metric(axes: Axes, steps: dict[int, dict[str, float]], name: str, colour: str, style: str, label: str) -> None:
    points = [(step, metrics) for step, metrics in steps.items() if name in metrics]
    x, y = [step for step, _ in points], [metrics[name] for _, metrics in points]
    axes.plot(x, y, style, color=colour, label=label)
    if points and f"{name}_low" in points[0][1]:
        low, high = ([metrics[f"{name}_{end}"] for _, metrics in points] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.12)


if __name__ == "__main__":
    main()
