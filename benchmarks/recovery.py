"""What the loss of the learner or an engine costs: `.venv/bin/python -m benchmarks.recovery`.

A learner that is lost at step k, with its last checkpoint at c, is rebuilt by a replay of the steps after c: no more
than k - c updates, the one of step k included. Each is killed right after the step's batch was stored (tests/faults),
with a fake engine. Writes benchmarks/recovery.json and recovery.md.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tasks.run.directory import Run
from tasks.tracking.provenance import provenance
from tests.faults.faults import Fault
from tests.faults.harness import Harness, Outcome
from tests.faults.results import differences
from trainer.files import read_json, write_json

OUT = Path(__file__).with_suffix(".json")
STEPS, EVERY = 8, 4
SETTINGS = [f"steps={STEPS}", "evaluation.every=100", f"learner.checkpoint_every={EVERY}"]
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recovery-") as home, Harness(Path(home), settings=SETTINGS) as harness:
        harness.train()  # makes the model and the cold start, which later runs find
        undisturbed = harness.train()
        # The last step's update may be over when the blow falls, and nobody needs the learner then.
        learners = [
            learner_line(undisturbed, harness.train(Fault("learner actor", step, "batch.json")), step)
            for step in range(1, STEPS)
        ]
        engines = [
            engine_line(undisturbed, harness.train(Fault("engine server", step, "batch.json")), step)
            for step in range(1, STEPS, EVERY)
        ]
        update = median(update_seconds(undisturbed.run))
    report = {
        "command": "python -m benchmarks.recovery",
        **provenance(),
        "update_seconds": update,
        "learner": learners,
        "engine": engines,
    }
    write_json(OUT, report)
    OUT.with_suffix(".md").write_text(table(report))
    print(table(report))


def learner_line(undisturbed: Outcome, outcome: Outcome, step: int) -> Line:
    """Return what the loss of the learner at a step cost: updates, and seconds until the next one was done.

    The update of the step itself may be over when the blow falls; the loss is then at the step after it.
    """
    assert outcome.struck, f"the run was over before step {step}"
    rebuilt = [event for event in outcome.events if event["event"] == "learner rebuilt"]
    # Version 0 is loaded from its weights, which is no event.
    version, loaded = (rebuilt[0]["version"], rebuilt[0]["checkpoint"]) if rebuilt else (0, 0)
    return {
        "step": version + 1,
        "checkpoint": version // EVERY * EVERY,  # the last that was due, whatever was loaded
        "updates": version + 1 - loaded,
        "seconds": outcome.run.step_file(version + 1, "update.json").stat().st_mtime - outcome.struck[0],
        "differs": differences(undisturbed.result, outcome.result),
    }


def engine_line(undisturbed: Outcome, outcome: Outcome, step: int) -> Line:
    """Return what the loss of an engine's server cost: the starts of a server, and the seconds of the last one."""
    started = [event["seconds"] for event in outcome.events if event["event"] == "engine started"]
    return {
        "step": step,
        "starts": len(started) - 1,
        "seconds": started[-1],
        "differs": differences(undisturbed.result, outcome.result),
    }


def update_seconds(run: Run) -> list[float]:
    """Return the seconds of each update of a run but the first, which loads the learner."""
    return [read_json(run.step_file(step, "update.json"))["seconds"] for step in range(2, run.recipe.steps + 1)]


def table(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    update, learners = report["update_seconds"], report["learner"]
    start = median(line["seconds"] - line["updates"] * update for line in learners)
    worst = max(line["updates"] - (line["step"] - line["checkpoint"]) for line in learners)
    bound = "never more than k - c updates" if worst <= 0 else f"up to {worst} updates more than k - c"
    return "\n".join(
        [
            "# What a loss costs",
            "",
            f"{report['machine']}; commit {report['commit'][:12]}; tiny policy, fake engine; `{report['command']}`.",
            "",
            f"A learner that was lost at step k with its last checkpoint at c took {bound} to be where it was.",
            f"An update takes {update:.2f} s here; the rest, {start:.1f} s in the median, is a new process that",
            "imports PyTorch, loads the model and reads the checkpoint.",
            "",
            *_rows(("k", "c", "updates", "seconds until update k is done", "differs in"), learners,
                   lambda line: (line["step"], line["checkpoint"], line["updates"], f"{line['seconds']:.1f}")),
            "",
            "An engine whose server was killed is started once more, with the weights that the step needs.",
            "",
            *_rows(("k", "starts", "seconds of the start", "differs in"), report["engine"],
                   lambda line: (line["step"], line["starts"], f"{line['seconds']:.1f}")),
        ]
    ) + "\n"  # fmt: skip


def _rows(heads: Sequence[str], lines: Sequence[Line], cells: Any) -> list[str]:
    rows = [[*map(str, cells(line)), ", ".join(line["differs"]) or "nothing"] for line in lines]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


if __name__ == "__main__":
    main()
