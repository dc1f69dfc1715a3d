"""Whether the nodes of a cluster are alike and reach what a run needs: each is asked before anything starts."""

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import ray
from prefect.settings import get_current_settings
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from configs.errors import UserError
from configs.schema import Recipe
from configs.timeouts import Timeouts
from tasks.processes.code import code_digest
from tasks.run.directory import home
from tasks.run.stores import check_store

PACKAGES = ("torch", "ray", "sglang", "prefect")
CODE = "code of rl-post"


@dataclass(frozen=True)
class Report:
    """What a node says of itself.

    Attributes:
        versions: by name, the versions that must be the same everywhere.
        out_of_reach: by name of what the node can't reach, the reason.
    """

    versions: Mapping[str, str]
    out_of_reach: Mapping[str, str]


def check_nodes(recipe: Recipe) -> None:
    """Compare the nodes of a cluster with this driver. A single node needs no comparison.

    Raises:
        UserError: names each node that differs, or that doesn't reach the run directory, the Prefect API, MLflow or the
            archive.
    """
    names = _living_nodes()
    if len(names) < 2:
        return
    with _meeting_place(home()) as place:
        answers = _ask(names, place, _services(recipe), recipe.timeouts)
        answers = {names[node]: _read_back(place / node, answer) for node, answer in answers.items()}
    if found := problems(versions(), answers):
        raise UserError(f"the cluster is not ready: {'; '.join(found)}. docs/clusters.md says what the nodes need")


def problems(driver: Mapping[str, str], answers: Mapping[str, Report | str]) -> list[str]:
    """Tell what is wrong with each node.

    Args:
        driver: The versions that the nodes must have.
        answers: By node: its report, or why there is none.
    """
    found = []
    for node, answer in answers.items():
        if isinstance(answer, str):
            found.append(f"node {node} {answer}")
            continue
        for name, version in driver.items():
            if (there := answer.versions.get(name, "not reported")) != version:
                found.append(f"node {node} has {name} {there}, the driver {version}")
        found += [f"node {node} does not reach {what}: {why}" for what, why in answer.out_of_reach.items()]
    return found


def versions() -> dict[str, str]:
    """Return the versions of this process that have to be the same on every node."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}, CODE: code_digest()}


def report(file: Path, services: Mapping[str, str], connect: float) -> Report:
    """Say what this node has and reaches.

    Args:
        file: Written with its own name as content, for the driver to read. The driver made its folder.
        services: By name, the URL to get, or the address of a store.
        connect: Seconds until a service must answer.
    """
    out_of_reach = {}
    try:
        file.write_text(file.name)
    except OSError as error:
        out_of_reach[_directory(file)] = f"{error.strerror}; set RL_POST_HOME to a directory that all nodes mount"
    for name, url in services.items():
        if why := _unreachable(url, connect):
            out_of_reach[f"{name} at {httpx.URL(url).netloc.decode()}"] = why
    return Report(versions(), out_of_reach)


def _unreachable(url: str, connect: float) -> str | None:
    """Say why a service does not answer as it should; without its URL, which may hold a password."""
    if not url.startswith("http"):
        try:
            check_store(url)
        except UserError as error:
            return str(error)
        return None
    try:
        answer = httpx.get(url, timeout=connect)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return None if answer.is_success else f"it answers with status {answer.status_code}"


def _living_nodes() -> dict[str, str]:
    """Return a readable name of each node, by its id in Ray."""
    return {
        node["NodeID"]: f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"
        for node in ray.nodes()
        if node["Alive"]
    }


def _services(recipe: Recipe) -> dict[str, str]:
    """Return the services that nodes reach over the network. Only the driver uses MLflow's database file."""
    services = {}
    if prefect := get_current_settings().api.url:
        services["the Prefect API"] = f"{prefect}/health"
    mlflow = recipe.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if mlflow.startswith("http"):
        services["MLflow"] = f"{mlflow.rstrip('/')}/health"
    if recipe.archive:
        services["the archive"] = recipe.archive
    return services


@contextmanager
def _meeting_place(home: Path) -> Iterator[Path]:
    """Make a folder that nodes write to, in the directory of all runs."""
    home.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".preflight-", dir=home))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _ask(
    nodes: Mapping[str, str], place: Path, services: Mapping[str, str], timeouts: Timeouts
) -> dict[str, Report | str]:
    """Have every node report at once."""
    asking: Any = ray.remote(num_cpus=0, max_retries=0)(report)
    asked = {
        node: asking.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            place / node, services, timeouts.connect
        )
        for node in nodes
    }
    # Ray's own wait would hear no signal.
    answered = {node: answer.future() for node, answer in asked.items()}
    _, late = wait(answered.values(), timeout=timeouts.answer)
    for node, answer in answered.items():
        if answer in late:
            ray.cancel(asked[node], force=True)
    return {
        node: f"gave no answer in {timeouts.answer:g} s" if answer in late else _get(answer)
        for node, answer in answered.items()
    }


def _get(answer: Future[Report]) -> Report | str:
    try:
        return answer.result()
    except RayError as error:
        return f"could not be asked: {str(error).strip().splitlines()[-1]}"


def _read_back(file: Path, answer: Report | str) -> Report | str:
    """Add an entry to a report if what the node wrote can't be read here."""
    if isinstance(answer, str) or _directory(file) in answer.out_of_reach:
        return answer
    try:
        if file.read_text() == file.name:
            return answer
        why = "what it wrote reads differently here"
    except OSError as error:
        why = f"what it wrote can't be read here: {error.strerror}"
    return Report(answer.versions, {**answer.out_of_reach, _directory(file): why})


def _directory(file: Path) -> str:
    return f"the run directory {file.parent.parent}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
