"""Learning curves of a recipe: runs it by the front door, once a seed, and keeps what came out.

    python benchmarks/learning.py r1 --seeds 0 1 2
    python benchmarks/learning.py smollm2

Writes benchmarks/<recipe>.json (machine, command, numbers), .md (a table) and .png (the curves).
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flows.curves import ACCURACIES, draw_curves
from tasks.evaluate.statistics import outcomes_of, paired_difference, with_interval
from tasks.records.samples import read_samples
from tasks.run.directory import Run, home
from tasks.run.ledger import committed_steps, open_run, read_commit
from tasks.tracking.provenance import provenance

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    results = [measure(arguments.recipe, seed, arguments.overrides) for seed in arguments.seeds]
    report = {
        "command": " ".join(["python", *sys.argv]),
        **provenance(),
        "runs": results,
    }
    target = HERE / arguments.recipe
    target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    target.with_suffix(".md").write_text(table(arguments.recipe, report))
    histories = {f"seed {run['seed']}": run["steps"] for run in results}
    draw_curves(arguments.recipe, histories).savefig(target.with_suffix(".png"), dpi=110)
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
        "times": {step: read_commit(run, step)["time"] for step in steps},
        "gain": {kind: gain(run, kind, steps[-1]) for kind in ACCURACIES},
    }


def gain(run: Run, kind: str, last: int) -> dict[str, float]:
    """Return the difference of accuracy between the last weights and the first, question by question.

    Over the `questions` whose answers could be scored both times.
    """
    first, final = (outcomes_of(read_samples([run.step_file(step, f"eval-{kind}.parquet")])) for step in (0, last))
    both = first.keys() & final.keys()
    before, after = ({question: each[question] for question in first if question in both} for each in (first, final))
    difference = paired_difference(before, after)
    return {"mean": difference.mean, "low": difference.low, "high": difference.high, "questions": difference.problems}


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
        for kind in ACCURACIES:
            name = f"eval/heldout/{kind}_accuracy"
            before, after = (with_interval(steps[step], name) for step in (min(steps), max(steps)))
            won = run["gain"][kind]
            difference = f"{won['mean']:+.3f} [{won['low']:+.3f}, {won['high']:+.3f}]"
            lines.append(
                f"| {run['seed']} | {kind} | {before} | {after} | {difference} | {max(steps)} | {run['seconds']:.0f} |"
            )
    lines += ["", f"![curves]({recipe}.png)", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
