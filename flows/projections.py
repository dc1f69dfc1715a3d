"""Where the ledger is shown or copied: MLflow, Prefect's page, the terminal, and the archive of a run."""

import fnmatch
import logging
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flows.curves import ACCURACIES, draw_curves
from tasks.archive.task import Archive
from tasks.dataset.report import markdown
from tasks.dataset.store import read_report
from tasks.evaluate.statistics import with_interval
from tasks.records.samples import read_samples
from tasks.run.directory import SCORED_FILES, Run
from tasks.run.ledger import Receipt, committed_steps, read_commit
from tasks.tracking.away import Sparing
from tasks.tracking.tracker import Tracker

logger = logging.getLogger(__name__)

HEADLINE = {
    "reward/mean": "reward {:.2f}",
    "eval/heldout/sampled_accuracy": "accuracy {:.2f}",
    "perf/rollout_tokens_per_second": "{:.0f} tokens/s",
}


class Projections:
    """Projects a run's committed steps for the length of a `with` block."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tracker = Tracker(run)
        self._archive = Archive(run)
        self._page = Sparing()
        self._artifact: UUID | None = None
        self._latest: dict[str, float] = {}
        self._has_begun = False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[headline]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(run.id, total=run.recipe.steps, headline="starting")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        failed = "FAILED" if kind and issubclass(kind, Exception) else "KILLED"
        self._tracker.finish(failed if kind else "FINISHED")

    def start(self, dataset: Receipt) -> None:
        """Show that the run has begun."""
        self._tracker.log_dataset(dataset)
        report = markdown(read_report(dataset["path"]))
        self._tracker.log_text(report, "data_report.md")
        self._bar.update(self._task, headline="cold start and engines")
        self._say(f"run {self._run.id} in {self._run.root}, MLflow {self._tracker.location}")
        self._has_begun = True
        self._show(lambda: create_markdown_artifact(report, description=f"data of {self._run.id}"))

    def project(self, step: int) -> None:
        """Show everything that is committed up to a step."""
        self._tracker.project()
        self._archive.follow()
        record = read_commit(self._run, step)
        if step and (step % self._run.recipe.tracking.table_every == 0 or step == self._run.recipe.steps):
            names = sorted(fnmatch.filter(record["files"], SCORED_FILES))  # of every round that the step took
            self._tracker.log_samples(step, read_samples([self._run.step_file(step, name) for name in names]))
        self._latest |= record["metrics"]
        shown = [text.format(self._latest[name]) for name, text in HEADLINE.items() if name in self._latest]
        self._bar.update(self._task, completed=step, headline="  ".join(shown))
        self._say("  ".join([f"step {step} of {self._run.recipe.steps}", *shown]))
        if self._has_begun:
            self._show(lambda: self._show_progress(100.0 * step / self._run.recipe.steps))

    def finish(self) -> dict[str, Any]:
        """Register the final model, draw its curves, leave a summary on Prefect's page, and return it."""
        name = self._run.recipe.tracking.register_as
        if name:
            self._tracker.register(self._run.weights(self._run.recipe.steps), name)
        history = {step: read_commit(self._run, step)["metrics"] for step in committed_steps(self._run)}
        self._tracker.log_figure(draw_curves(self._run.recipe.name, {self._run.id: history}), "curves.png")
        self._archive.finish()
        outcome = {
            "run": self._run.id,
            "directory": str(self._run.root),
            "mlflow": self._tracker.location,
            **({"archive": self._archive.state} if self._archive.state else {}),
            **{f"{name} before → after": change for name, change in _changes(self._run).items()},
        }
        summary = "\n".join(f"- **{key}**: {value}" for key, value in outcome.items())
        self._show(lambda: create_markdown_artifact(summary), now=True)
        return outcome

    def _say(self, line: str) -> None:
        """Log a line on Prefect's page, by a thread of Prefect's; print it where there is no screen for the bar."""
        flow = FlowRunContext.get()
        if flow:
            get_run_logger(flow).info(line)
        deployed = flow and flow.flow_run and flow.flow_run.deployment_id  # The worker's log has the line already.
        if not sys.stdout.isatty() and not deployed:
            print(line, flush=True)

    def _show(self, show: Callable[[], object], now: bool = False) -> None:
        """Change Prefect's page, unless its server is away; the page is then late, and training goes on."""
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            self._page.try_to(show, _say_late, now)

    def _show_progress(self, percent: float) -> None:
        if self._artifact is None:
            self._artifact = cast(UUID, create_progress_artifact(percent, description=f"steps of {self._run.id}"))
        else:
            update_progress_artifact(self._artifact, percent)


def _say_late(error: Exception) -> None:
    logger.warning("Prefect: %s: %s. Training goes on; its page is late.", type(error).__name__, error)


def _changes(run: Run) -> dict[str, str]:
    """Return the evaluated accuracies of the first and the last weights, with their 95 % intervals."""
    first, last = (read_commit(run, step)["metrics"] for step in (0, max(committed_steps(run))))
    names = [f"eval/heldout/{kind}_accuracy" for kind in ACCURACIES]
    return {name: f"{with_interval(first, name)} → {with_interval(last, name)}" for name in names}
