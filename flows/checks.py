"""What can be found wrong, and what would start, before anything starts."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from configs.errors import UserError
from configs.loader import dump_yaml, load_recipe
from configs.schema import Recipe
from tasks.dataset.sources import load
from tasks.runtime.cluster import needed
from tasks.runtime.ledger import home, open_run


def check_before_start(name: str, overrides: Sequence[str], resume: str | None) -> None:
    """Refuse what can't work.

    Raises:
        UserError: a recipe or a dataset with a mistake, no run of that id, a directory that can't be written, a
            Prefect server that doesn't answer, or no SGLang.
    """
    recipe = open_run(home(), resume).recipe if resume else load_recipe(name, overrides, gpus=local_gpus())
    load(recipe.data)
    _check_writable(home())
    _check_prefect_server()
    if importlib.util.find_spec("sglang") is None:
        raise UserError("SGLang is not installed in this environment: run `make setup`")


def describe_plan(name: str, overrides: Sequence[str], console: Console) -> None:
    """Print the resolved recipe and the processes that it would start."""
    gpus = local_gpus()
    recipe = load_recipe(name, overrides, gpus)
    console.print(dump_yaml(recipe), markup=False, highlight=False)
    console.print(_placement(recipe))
    needs = needed(recipe)
    console.print(
        f"needs {needs['CPU']:g} CPU, {needs['GPU']:g} GPU and about {needs['memory'] / 2**30:.0f} GiB; "
        f"here are {os.cpu_count()} CPU and {gpus} GPU"
    )


def local_gpus() -> int:
    """Return the number of GPUs of this machine, NVIDIA or AMD."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _placement(recipe: Recipe) -> Table:
    engine, learner, rollout = recipe.engine, recipe.learner, recipe.rollout
    samples = rollout.prompts_per_step * rollout.samples_per_prompt
    table = Table("what", "how many", "resources of each", title="what would start", title_justify="left")
    table.add_row("SGLang engine (Ray actor)", str(engine.count), _resources(engine.cpus, engine.gpus))
    table.add_row("learner rank (Ray actor)", str(learner.ranks), _resources(learner.cpus, learner.gpus))
    table.add_row("step: rollout and reward shards", str(rollout.shards), f"{samples} samples in all")
    table.add_row("evaluation", f"every {recipe.evaluation.every} steps", f"{recipe.data.eval_size} questions")
    return table


def _resources(cpus: float, gpus: int) -> str:
    return f"{gpus} GPU" if gpus else f"{cpus:g} CPU reserved"


def _check_writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"can't write to {directory}: {error.strerror}. Set RL_POST_HOME to a writable directory"
        ) from None


def _check_prefect_server() -> None:
    """Refuse a configured Prefect server that doesn't answer; with none configured, a temporary one is started."""
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if url:
        try:
            httpx.get(f"{url}/health", timeout=10.0).raise_for_status()
        except httpx.HTTPError as error:
            raise UserError(
                f"the Prefect server at {url} does not answer ({error}). Start it (`make up`), or forget it "
                "(`make down`, or unset PREFECT_API_URL) to use a temporary one"
            ) from None
