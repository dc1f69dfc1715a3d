"""What rollouts beside updates gain: `python -m benchmarks.pipelining`.

Runs the R1 recipe with `pipeline.max_staleness` 0 and 1, engine and learner with a thread each, so that each has a core
of its own on two. The ideal is the time of rollout and update together over that of the longer one, as measured with
staleness 0. Writes benchmarks/pipelining.json and .md.
"""

import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.learning import measure
from tasks.tracking.provenance import provenance

OUT = Path(__file__).with_suffix(".json")
STEPS = 24
WARM_UP = 4  # Steps that are not counted.
OVERRIDES = [f"steps={STEPS}", "engine.threads=1", "learner.threads=1", f"evaluation.every={STEPS}"]


def main() -> None:
    """Measure both and write the table."""
    found = {staleness: _steps(staleness) for staleness in (0, 1)}
    metrics = found[0]["metrics"]
    rollout = median(step["time/rollout"] + step["time/reward"] for step in metrics)
    update = median(step["time/update"] + step["time/publish"] for step in metrics)
    seconds = {staleness: result["seconds"] for staleness, result in found.items()}
    report = {
        "command": "python -m benchmarks.pipelining",
        **provenance(),
        "seconds_a_step": seconds,
        "rollout_seconds": rollout,
        "update_seconds": update,
        "ideal_gain": (rollout + update) / max(rollout, update),
        "gain": seconds[0] / seconds[1],
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n")
    OUT.with_suffix(".md").write_text(table(report))
    print(table(report))


def _steps(staleness: int) -> dict[str, Any]:
    """Return the metrics of the counted steps, and the median seconds from commit to commit."""
    run = measure("r1", 0, [*OVERRIDES, f"pipeline.max_staleness={staleness}"])
    # The last steps of a pipelined run have nothing beside them.
    counted = range(WARM_UP + 1, STEPS - 1)
    return {
        "metrics": [run["steps"][step] for step in counted],
        "seconds": median((run["times"][step] - run["times"][step - 1]) / 1000 for step in counted),
    }


def table(report: dict[str, Any]) -> str:
    """Return the report as a page."""
    seconds = report["seconds_a_step"]
    return "\n".join(
        [
            "# Rollouts beside updates",
            "",
            f"`{report['command']}` at {report['commit'][:7]} on {report['machine']}; median of a step.",
            "",
            "| `pipeline.max_staleness` | seconds a step |",
            "|---|---|",
            *(f"| {staleness} | {value:.2f} |" for staleness, value in seconds.items()),
            "",
            f"Rollout and reward take {report['rollout_seconds']:.2f} s, update and publication "
            f"{report['update_seconds']:.2f} s. One after the other against side by side would be "
            f"{report['ideal_gain']:.2f} times as fast at best; it is {report['gain']:.2f} times, "
            f"{report['gain'] / report['ideal_gain']:.0%} of that.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
