"""What can be found wrong before anything starts."""

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
from tasks.cluster.devices import visible_devices
from tasks.cluster.machines import GPUS, Cluster, gpu_kind, parse_cluster
from tasks.dataset.sources import check
from tasks.run.directory import home
from tasks.run.lock import check_free
from tasks.run.resume import check_resume
from tasks.run.stores import check_store


def check_before_start(name: str, overrides: Sequence[str], resume: str | None) -> None:
    """Refuse what can't work.

    Raises:
        UserError: a recipe or a dataset with a mistake, a run that is not there, is being run or can't go on so, a
            directory that can't be written, a Prefect server that doesn't answer or whose address holds a password, or
            no SGLang.
    """
    recipe = _resumed(resume, overrides) if resume else load_recipe(name, overrides, gpus=local_gpus())
    check(recipe.data)
    check_devices()
    _check_writable(home())
    if recipe.archive:
        check_store(recipe.archive)
    _check_prefect_server()
    if importlib.util.find_spec("sglang") is None:
        raise UserError("SGLang is not installed in this environment: run `make setup`")


def local_gpus() -> int:
    """Return the number of GPUs of this machine, NVIDIA or AMD."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def check_devices() -> None:
    """Refuse contradicting variables of visible GPUs, where PyTorch was built for GPUs."""
    import torch

    visible_devices(os.environ, "amd" if torch.version.hip else "nvidia" if torch.version.cuda else "cpu")


def local_cluster() -> Cluster:
    """Return this machine.

    Raises:
        UserError: it has GPUs of a kind that is not known here.
    """
    import torch

    count = local_gpus()
    if not count:
        return parse_cluster("cpu")
    name = torch.cuda.get_device_name()
    kind = gpu_kind(name)
    if kind is None:
        raise UserError(
            f"this machine's {name} is not one of {', '.join(GPUS)}; name one of about its size by --cluster"
        )
    return Cluster(1, count, kind)


def _resumed(name: str, overrides: Sequence[str]) -> Recipe:
    run = opened(home(), name)
    check_free(run)
    recipe, _ = check_resume(run, overrides)
    return recipe


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
    if url and holds_user(url):
        raise UserError(
            "PREFECT_API_URL holds a user name or password, and Prefect shows and logs it: give them by "
            "PREFECT_API_AUTH_STRING, as user:password"
        )
    if url:
        try:
            httpx.get(f"{url}/health", timeout=10.0).raise_for_status()
        except httpx.HTTPError as error:
            raise UserError(
                f"the Prefect server at {url} does not answer ({error}). Start it (`make up`), or forget it "
                "(`make down`, or unset PREFECT_API_URL) to use a temporary one"
            ) from None
