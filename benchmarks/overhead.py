"""What it costs to lose nothing: a recipe with and without hashes, syncs, write-ahead log, events and checkpoints.

    python -m benchmarks.overhead smollm2 --repeats 2 steps=8

Runs take turns, with (`on`) and without (`off`); only here can they be without (overhead_hook/sitecustomize.py). Two
runs differ by more than what is measured, so the seconds of each part are noted too: their share of the time of a step
is the number that counts. What runs beside other work is counted in full, so it is an upper bound. Writes
benchmarks/overhead.json and overhead.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

from tasks.run.directory import Run, home
from tasks.run.ledger import committed_steps, open_run, read_commit
from tasks.run.lock import hold
from tasks.tracking.provenance import provenance
from trainer.files import read_json, write_json

OUT = Path(__file__).with_suffix(".json")
HOOK = Path(__file__).parent / "overhead_hook"
ROOT = Path(__file__).parents[1]
LIMIT = 0.03  # Share of a step's time that all of it may take.
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each kind")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_intermixed_args()
    runs = [
        measure(mode, arguments.recipe, arguments.overrides) for _ in range(arguments.repeats) for mode in ("on", "off")
    ]
    report = {
        "command": " ".join(["python -m benchmarks.overhead", *sys.argv[1:]]),
        **provenance(),
        "recipe": arguments.recipe,
        "runs": runs,
    }
    write_json(OUT, report)
    OUT.with_suffix(".md").write_text(table(report))
    print(table(report))


def measure(mode: str, recipe: str, overrides: Sequence[str]) -> Line:
    """Run a recipe and return the seconds of its steps and, where it is `on`, of each part in a step."""
    before = set((home() / "runs").glob("*"))
    with tempfile.TemporaryDirectory(prefix="overhead-") as logs:
        environment = {"OVERHEAD": mode, "OVERHEAD_LOG": logs, "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}
        command = [str(Path(sys.executable).parent / "rl-post"), "run", recipe, *overrides]
        subprocess.run(command, check=True, env=os.environ | environment)
        noted = [line.split(maxsplit=2) for log in Path(logs).iterdir() for line in log.read_text().splitlines()]
    (root,) = set((home() / "runs").glob("*")) - before
    run = open_run(home(), root.name)
    ends = [read_commit(run, step)["time"] / 1000 for step in committed_steps(run)]
    # The first step waits for the learner and the last one writes a checkpoint whatever the recipe says.
    first, last = ends[1], ends[-2]
    parts: dict[str, float] = defaultdict(float)
    for time, seconds, label in noted:
        if first < float(time) <= last:
            parts[label] += float(seconds)
    steps = len(ends) - 3
    if mode == "on":
        parts["checkpoints"] = steps * checkpoint_seconds(run) / run.recipe.learner.checkpoint_every
        parts["lock"] = steps * lock_seconds(run)
    seconds = [end - start for start, end in pairwise(ends[1:-1])]
    return {"mode": mode, "seconds": seconds, "parts": {label: total / steps for label, total in sorted(parts.items())}}


def checkpoint_seconds(run: Run) -> float:
    """Return the seconds that a full checkpoint of a run's learner takes."""
    from trainer.learner.learner import Learner

    policy = read_json(run.step_file(0, "policy.json"))["path"]
    learner = Learner(run.recipe, Path(policy))
    with tempfile.TemporaryDirectory(dir=run.home) as folder:
        start = perf_counter()
        learner.save_checkpoint(Path(folder) / "checkpoint", "r")
        return perf_counter() - start


def lock_seconds(run: Run) -> float:
    """Return the seconds that a driver takes to see that the run is still its own, once a step."""
    with hold(run) as lock:
        start = perf_counter()
        for _ in range(100):
            lock.check()
        return (perf_counter() - start) / 100


def table(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    by_mode = {mode: [run for run in report["runs"] if run["mode"] == mode] for mode in ("on", "off")}
    steps = {mode: [seconds for run in runs for seconds in run["seconds"]] for mode, runs in by_mode.items()}
    labels = sorted({label for run in by_mode["on"] for label in run["parts"]})
    parts = {label: mean(run["parts"].get(label, 0.0) for run in by_mode["on"]) for label in labels}
    step, total = mean(steps["on"]), sum(parts.values())
    verdict = "under" if total / step < LIMIT else "over"
    return "\n".join(
        [
            f"# What it costs to lose nothing: {report['recipe']}",
            "",
            f"{report['machine']}; commit {report['commit'][:12]}; `{report['command']}`.",
            "",
            f"**{total / step:.2%} of a step's time**, {verdict} {LIMIT:.0%}.",
            f"Median step: {median(steps['on']):.2f} s with, {median(steps['off']):.2f} s without "
            f"({len(steps['on'])} and {len(steps['off'])} steps).",
            "",
            "| part | ms a step | share of a step |",
            "|---|---|---|",
            *(f"| {label} | {1000 * seconds:.1f} | {seconds / step:.3%} |" for label, seconds in parts.items()),
            "",
            "`samples` is all of the time that writing them takes, the write itself included.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
