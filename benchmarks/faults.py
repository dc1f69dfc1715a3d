"""Kill one thing at a random moment, a hundred times: `.venv/bin/python -m benchmarks.faults --seeds 0-99`.

Each seed is a training run that is disturbed once (tests/faults) and must end with the same weights, samples,
evaluations and MLflow history as the undisturbed one. A seed's line is written when it is done, and a seed that has one
is not run again: stop and go on as you like. Writes benchmarks/faults.json and faults.md.
"""

import argparse
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import Progress

from tasks.tracking.tracker import git_commit
from tests.faults.faults import fault_of
from tests.faults.harness import ROOT, STEPS, Harness
from tests.faults.results import differences
from trainer.files import read_json, write_json

OUT = Path(__file__).with_suffix(".json")
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-99", help="first-last, both included")
    parser.add_argument("--engine", choices=["fake", "sglang"], default="fake", help="what generates")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    lines: list[Line] = read_json(OUT) if OUT.exists() else []
    done = {(line["engine"], line["seed"]) for line in lines}
    seeds = [seed for seed in range(first, last + 1) if (arguments.engine, seed) not in done]
    with Progress() as bar, tempfile.TemporaryDirectory(prefix="faults-") as home:
        task = bar.add_task("undisturbed", total=len(seeds))
        with Harness(Path(home), fake=arguments.engine == "fake") as harness:
            harness.train()  # makes the model and the cold start, which later runs find
            undisturbed = harness.train()
            for seed in seeds:
                fault = fault_of(seed, STEPS)
                bar.update(task, description=f"seed {seed}: {fault}")
                line: Line = {
                    "seed": seed,
                    "engine": arguments.engine,
                    "kind": fault.kind,
                    "fault": str(fault),
                    **code(),
                }
                try:
                    outcome = harness.train(fault)
                    line |= {
                        "struck": bool(outcome.struck),
                        "recovery": outcome.recovery,
                        "events": [event["event"] for event in outcome.events],
                        "seconds_lost": outcome.seconds - undisturbed.seconds,
                        "differs": differences(undisturbed.result, outcome.result),
                    }
                except AssertionError as error:
                    line |= {"struck": True, "recovery": "none", "seconds_lost": None, "differs": [str(error)]}
                lines.append(line)
                write_json(OUT, lines)
                OUT.with_suffix(".md").write_text(report(lines))
                bar.advance(task)


def code() -> Line:
    """Return which code runs: the commit, and whether the files are as committed, results of benchmarks aside."""
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--", ".", ":!benchmarks/*.json", ":!benchmarks/*.md"]
    changed = subprocess.run(status, capture_output=True, text=True).stdout
    return {"commit": git_commit(), "clean": not changed}


def report(lines: Sequence[Line]) -> str:
    """Return the table of what was killed, how it went on, and what it cost."""
    by_kind: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        by_kind[line["engine"], line["kind"]].append(line)
    struck = [line for line in lines if line["struck"]]
    same = sum(not line["differs"] for line in struck)
    rows = [
        "# Kill anything at any moment",
        "",
        f"{same} of {len(struck)} disturbed runs ended with the same weights, samples, evaluations and MLflow history",
        "as the undisturbed one, bit for bit. A seed decides what is struck and when; `python -m benchmarks.faults`",
        "makes this table. Seconds are against the undisturbed run on the same machine, whose other work is in them.",
        f"Commits: {', '.join(sorted({_commit(line) for line in lines}))}.",
        "",
        "| engine | struck | runs | the same | by itself | resumed | seconds lost, median | most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (engine, kind), runs in sorted(by_kind.items()):
        hit = [line for line in runs if line["struck"]]
        lost = [line["seconds_lost"] for line in hit if line["seconds_lost"] is not None]
        alone = sum(line["recovery"] == "by itself" for line in hit)
        equal = sum(not line["differs"] for line in hit)
        cost = f"{median(lost):.0f} | {max(lost):.0f}" if lost else " | "
        rows.append(f"| {engine} | {kind} | {len(hit)} | {equal} | {alone} | {len(hit) - alone} | {cost} |")
    rows += [
        "",
        "| seed | engine | what and when | how it went on | seconds lost | differs in |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        seconds = "" if line["seconds_lost"] is None else f"{line['seconds_lost']:.0f}"
        recovery = _short(line["recovery"] if line["struck"] else "over before")
        differs = _short(", ".join(line["differs"]) or "nothing")
        rows.append(f"| {line['seed']} | {line['engine']} | {line['fault']} | {recovery} | {seconds} | {differs} |")
    return "\n".join(rows) + "\n"


def _commit(line: Line) -> str:
    return line["commit"][:12] + ("" if line["clean"] else " and changes")


def _short(text: str) -> str:
    return text.splitlines()[0][:100].replace("|", "/")


if __name__ == "__main__":
    main()
