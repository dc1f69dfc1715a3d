"""Checks before anything starts."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from configs.addresses import holds_user
from configs.errors import UserError
from configs.loader import load_recipe
from configs.schema import Recipe
from tasks.archive.store import opened
from tasks.dataset.sources import check_sources
from tasks.processes.machine import check_devices, local_gpus
from tasks.run.directory import home
from tasks.run.lock import check_free
from tasks.run.resume import check_resume
from tasks.run.stores import check_store
from trainer.model.shape import longest_context
from trainer.model.tokens import beyond_positions


def check_before_start(name: str, overrides: Sequence[str], resume: str | None) -> None:
    """Refuse a run that can't work.

    Raises:
        UserError: a recipe or a dataset with a mistake, a context that is longer than the model's, a run that is not
            there, is being run or can't go on so, a directory that can't be written, a Prefect server that doesn't
            answer or whose address holds a password, or no SGLang.
    """
    recipe = _resumed(resume, overrides) if resume else load_recipe(name, overrides, gpus=local_gpus())
    check_sources(recipe.data)
    _check_context(recipe)
    check_devices()
    _check_writable(home())
    if recipe.archive:
        check_store(recipe.archive)
    _check_prefect_server(recipe)
    if importlib.util.find_spec("sglang") is None:
        raise UserError("SGLang is not installed in this environment: run `make setup`")


def _resumed(name: str, overrides: Sequence[str]) -> Recipe:
    run = opened(home(), name)
    check_free(run)
    return check_resume(run, overrides).recipe


def _check_context(recipe: Recipe) -> None:
    path = recipe.model.path
    if problem := beyond_positions(path, recipe.model.context_length, longest_context(path)):
        raise UserError(problem)


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


def _check_prefect_server(recipe: Recipe) -> None:
    """Refuse a configured Prefect server that doesn't answer; with none configured, a temporary one is started."""
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if url and holds_user(url):
        raise UserError(
            "PREFECT_API_URL holds a user name or password, and Prefect shows and logs it: give them by "
            "PREFECT_API_AUTH_STRING, as user:password"
        )
    if url:
        try:
            httpx.get(f"{url}/health", timeout=recipe.timeouts.connect).raise_for_status()
        except httpx.HTTPError as error:
            raise UserError(
                f"the Prefect server at {url} does not answer ({error}). Start it (`make up`), or forget it "
                "(`make down`, or unset PREFECT_API_URL) to use a temporary one"
            ) from None
