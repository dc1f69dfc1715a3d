"""The command line: `rl-post run`, `resume`, `runs`, `show`, `verify`, `plan`, `data`, `doctor`, `up` and `down`."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from configs.errors import UserError
from tasks.processes.machine import local_cluster

app = typer.Typer(no_args_is_help=True, add_completion=False, help="RL post-training of language models as a workflow.")
# Without a screen, Rich would take 80 columns for the width: an address that is cut can't be used.
console = Console(width=None if sys.stdout.isatty() else 10_000)
Recipe = Annotated[str, typer.Argument(help="A recipe of configs/ by name, or a YAML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that differ.")]
Run = Annotated[str, typer.Argument(help="A run by its id, or its directory.")]
Resumed = Annotated[str, typer.Argument(help="A run by its id, its directory, or the address of its copy.")]
Resume = Annotated[str | None, typer.Option(help="Go on with this run; the recipe is then the run's own.")]
Cluster = Annotated[
    str | None, typer.Option(help="Plan for these machines instead of this one: `cpu`, or e.g. `4x8:MI300X`.")
]


@app.command()
def run(recipe: Recipe = "r1", overrides: Overrides = None, resume: Resume = None) -> None:
    """Train: run the flow here and now, with a progress bar."""
    # Errors are shown below, in one line; Prefect's page and database keep the full log, and a line a step.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL", "INFO")
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    from flows.checks import check_before_start

    check_before_start(recipe, overrides or [], resume)
    from flows.temporary_server import prefect_server

    with prefect_server():
        from flows.rl_post import rl_post

        outcome = rl_post(recipe, overrides or [], resume)
    table = Table(title="rl-post", show_header=False)
    for key, value in outcome.items():
        table.add_row(key, str(value))
    console.print(table)


@app.command()
def resume(name: Resumed, overrides: Overrides = None) -> None:
    """Go on with a run where its last committed step ends; some settings may differ from now on."""
    run("r1", overrides, name)


@app.command()
def runs() -> None:
    """List the runs: state, step, latest reward and accuracy, and how long ago the last step was."""
    from flows.runs import list_runs
    from tasks.run.directory import home

    list_runs(home(), console)


@app.command()
def show(name: Run) -> None:
    """Tell a run's story: its best weights, its steps, and every retry, crash, restart, change and resume."""
    from flows.runs import tell
    from tasks.run.directory import home
    from tasks.run.ledger import open_run

    tell(open_run(home(), name), console)


@app.command()
def verify(name: Run) -> None:
    """Check a run's files against the hashes that were committed, and its samples for what no update can use.

    Exit code 1 if one is damaged, missing, foreign or of no use.
    """
    from flows.runs import state
    from tasks.rollout.task import vocabulary_of
    from tasks.run.directory import home
    from tasks.run.ledger import committed_steps, open_run
    from tasks.run.verify import verify as problems_of

    checked = open_run(home(), name)
    if state(checked) == "running":
        console.print(f"{checked.id} is being run: what changes meanwhile may be named as a problem", soft_wrap=True)
    problems = problems_of(checked, vocabulary_of(checked))
    for problem in problems:
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(committed_steps(checked))} committed steps, {len(problems) or 'no'} problems")
    if problems:
        raise typer.Exit(1)


@app.command()
def plan(recipe: Recipe = "r1", overrides: Overrides = None, cluster: Cluster = None) -> None:
    """Print the resolved recipe, what would start where, and what its paper sets otherwise. Exit code 1: no fit."""
    from configs.loader import load_recipe
    from flows.plan import launch_plan, show
    from tasks.cluster.machines import parse_cluster
    from tasks.run.directory import home, models_in
    from trainer.model.pretrained import present

    machines = parse_cluster(cluster) if cluster else local_cluster()
    resolved = load_recipe(recipe, overrides or [], machines.gpus)
    found = launch_plan(resolved, machines)
    show(resolved, found, console, present(resolved.model, models_in(home())))
    if found.capacity.problems:
        raise typer.Exit(1)


@app.command()
def data(recipe: Recipe = "r1", overrides: Overrides = None) -> None:
    """Prepare the prompts and print what came of them; start nothing."""
    from flows.data import show_data

    show_data(recipe, overrides or [], console)


@app.command()
def doctor() -> None:
    """Tell what this machine has, what is missing and how to get it."""
    from flows.doctor import examine

    table = Table("check", "found", "what to do")
    findings = examine()
    for finding in findings:
        mark = "[green]ok[/]" if finding.fine else "[red]missing[/]"
        table.add_row(f"{mark} {finding.name}", finding.found, "" if finding.fine else finding.remedy)
    console.print(table)
    if not all(finding.fine for finding in findings):
        raise typer.Exit(1)


@app.command()
def up() -> None:
    """Start a Prefect server, an MLflow server and a worker here, and deploy the recipes."""
    from flows.services import start_services

    start_services(console)


@app.command()
def down() -> None:
    """End exactly what `rl-post up` started."""
    from flows.services import stop_services

    stop_services(console)


def main() -> None:
    """Run the command line. A user's mistake is one line and exit code 2, an interruption exit code 130."""
    # Bars of libraries that load a model or a dataset, here and in what `up` starts; this project shows one of its own.
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(f"[red]error:[/] {error}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
