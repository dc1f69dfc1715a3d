"""`rl-post runs` and `rl-post show`: which runs there are, how far each is, and what happened to one. Read-only."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from configs.errors import UserError
from tasks.cluster.limits import duration
from tasks.records.samples import JUDGED, STATUSES
from tasks.run.directory import Run, runs_in
from tasks.run.events import read_events
from tasks.run.ledger import BEST_BY, best_version, committed_steps, open_run, read_commit, read_record
from tasks.run.lock import describe, lives_here, read_owner

SHOWN = {
    "reward": "reward/mean",
    "accuracy": BEST_BY,
}
"""Columns of both tables and the metric that each shows."""
STAGES = ("rollout", "reward", "update", "publish", "evaluate")


@dataclass(frozen=True)
class Summary:
    """A line of `rl-post runs`.

    Attributes:
        state: `running`, `finished`, `failed` (an error ended it), or `stopped` (it was interrupted or killed).
        age: seconds since the last step was committed, or since the run was made; a guess if the clock was set.
    """

    run: str
    recipe: str
    state: str
    step: int | None
    steps: int
    latest: dict[str, float]
    age: float


def summaries(home: Path) -> tuple[list[Summary], list[str]]:
    """Return the runs of a home, the latest last, and what is wrong with the other folders."""
    found, left_out = [], []
    for folder in sorted(runs_in(home).glob("[!.]*/")):
        try:
            found.append(summary(open_run(home, folder.name)))
        except UserError as error:
            left_out.append(str(error))
    return sorted(found, key=lambda line: -line.age), left_out


def summary(run: Run) -> Summary:
    """Sum a run up from its ledger, its lock and its events.

    Raises:
        UserError: one of its records is damaged.
    """
    done = committed_steps(run)
    latest: dict[str, float] = {}
    for step in done:
        latest |= {name: value for name, value in read_commit(run, step)["metrics"].items() if name in SHOWN.values()}
    newest = run.commit(done[-1]) if done else run.record
    return Summary(
        run.id,
        run.recipe.name,
        state(run),
        done[-1] if done else None,
        run.recipe.steps,
        latest,
        max(0.0, time.time() - newest.stat().st_mtime),
    )


def state(run: Run) -> str:
    """Return `running`, `finished`, `failed` or `stopped`."""
    owner = read_owner(run)
    if owner:
        here = lives_here(owner)
        # For a driver on another machine the clock is good enough for a list. Taking the lock does not rely on it.
        with suppress(FileNotFoundError):  # The lock was just released.
            if here or (here is None and time.time() - run.lock.stat().st_mtime < run.recipe.timeouts.silence):
                return "running"
    if max(committed_steps(run), default=-1) >= run.recipe.steps:
        return "finished"
    ends = [event["event"] for event in read_events(run.events) if event["event"] in ("failed", "interrupted")]
    return "failed" if not owner and ends and ends[-1] == "failed" else "stopped"


def list_runs(home: Path, console: Console) -> None:
    """Print the table of runs, and a line for each folder that is none."""
    lines, left_out = summaries(home)
    if lines:
        console.print(_table(lines))
    else:
        console.print(f"no runs in {runs_in(home)}; `rl-post run` begins one")
    for problem in left_out:
        console.print(f"left out: {problem}", markup=False, highlight=False, soft_wrap=True)


def _table(lines: list[Summary]) -> Table:
    # An id that is cut can't be given to another command.
    ids = Column("run", no_wrap=True, min_width=max(len(line.run) for line in lines))
    table = Table(ids, "recipe", "state", "step", *SHOWN, "age")
    for line in lines:
        values = [_number(line.latest.get(name)) for name in SHOWN.values()]
        step = "-" if line.step is None else str(line.step)
        table.add_row(line.run, line.recipe, line.state, f"{step} of {line.steps}", *values, duration(line.age))
    return table


def tell(run: Run, console: Console) -> None:
    """Print a run's story: its best weights, what is on the disk, its steps, and what else happened.

    Raises:
        UserError: one of its records is damaged.
    """
    line = summary(run)
    owner = read_owner(run)
    held = f", held by {describe(owner)}" if owner else ""
    console.print(f"{run.id}  {line.state}{held}\n{run.root}", highlight=False, soft_wrap=True)
    console.print(_kept(run), highlight=False, soft_wrap=True)
    for change in read_record(run.record).get("changes", []):
        for key, (old, new) in change["changed"].items():
            console.print(f"{key}: {old} → {new} after step {change['after_step']}", highlight=False)
    table = Table("step", *(f"{stage} s" for stage in STAGES), *SHOWN, "not scored")
    for step in committed_steps(run):
        metrics = read_commit(run, step)["metrics"]
        stages = [_number(metrics.get(f"time/{stage}")) for stage in STAGES]
        table.add_row(str(step), *stages, *(_number(metrics.get(name)) for name in SHOWN.values()), _lost(metrics))
    console.print(table)
    for event in read_events(run.events):
        console.print(_told(event), highlight=False, markup=False, soft_wrap=True)


def _lost(metrics: Mapping[str, float]) -> str:
    """Tell how many of a step's samples have no verdict, and why; empty if all have one."""
    counts = {status: metrics.get(f"reward/status/{status}", 0.0) for status in STATUSES if status not in JUDGED}
    return ", ".join(f"{count:.0f} {status}" for status, count in counts.items() if count)


def _kept(run: Run) -> str:
    """Tell which evaluated version is the best, and which weights and checkpoints are on the disk."""
    best = best_version(run)
    if best is None:
        first = "best: nothing was evaluated yet, or no answer could be scored"
    else:
        accuracy = read_commit(run, best)["metrics"][BEST_BY]
        first = f"best: version {best}, accuracy {accuracy:.3f}, in {run.weights(best)}"
    weights, checkpoints = run.weights_versions(), run.checkpoints()
    return f"{first}\non the disk: weights {_listed(weights)}; checkpoints {_listed(checkpoints)}"


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions)) or "none"


def _told(event: dict[str, Any]) -> str:
    facts = {key: value for key, value in event.items() if key not in ("time", "event") and value is not None}
    said = "  ".join(f"{key}: {str(value).splitlines()[0] if str(value) else ''}" for key, value in facts.items())
    return f"{event['time']}  {event['event']}  {said}".rstrip()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
