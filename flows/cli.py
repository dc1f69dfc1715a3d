"""The front door: `rl-post run`, `plan`, `doctor`, `up` and `down`."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from configs.errors import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="RL post-training of language models as a workflow.")
console = Console()
Recipe = Annotated[str, typer.Argument(help="A recipe of configs/ by name, or a YAML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that differ.")]
Resume = Annotated[str | None, typer.Option(help="Go on with this run; the recipe is then the run's own.")]


@app.command()
def run(recipe: Recipe = "r1", overrides: Overrides = None, resume: Resume = None) -> None:
    """Train: run the flow here and now, with a progress bar."""
    # Errors are shown below, in one line; Prefect's page and database keep the full log.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
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
def plan(recipe: Recipe = "r1", overrides: Overrides = None) -> None:
    """Print the resolved recipe and what would start where; start nothing."""
    from flows.checks import describe_plan

    describe_plan(recipe, overrides or [], console)


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
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(f"[red]error:[/] {error}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
