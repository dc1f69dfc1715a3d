"""What this machine has, what is missing, and how to get it."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil

from configs.errors import UserError
from configs.loader import load_recipe
from tasks.cluster.capacity import GIB, capacity
from tasks.processes.machine import check_devices, describe_gpus, this_node
from tasks.run.directory import home
from trainer.model.shape import model_shape

PACKAGES = ("prefect", "prefect-ray", "ray", "torch", "sglang", "transformers", "datasets", "mlflow")
DISK = 5 * GIB


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    found: str
    fine: bool
    remedy: str


def examine() -> list[Finding]:
    """Look at the interpreter, the packages, the accelerators, the cluster, memory and disk."""
    return [*_python(), *_packages(), *_accelerators(), *_cluster(), *_resources()]


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        "python",
        version,
        (3, 11) <= sys.version_info[:2] <= (3, 12),
        "install Python 3.11 or 3.12 and run `make setup`",
    )


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield Finding(name, importlib.metadata.version(name), True, "")
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "not installed", False, "run `make setup`")
    if importlib.util.find_spec("torch") is not None:
        plugins = importlib.metadata.entry_points(group="sglang.srt.platforms")
        registered = any(plugin.name == "rl_post_cpu" for plugin in plugins)
        found = "registered" if registered else "not registered"
        yield Finding("SGLang's platform for CPUs", found, registered, "install this project: `make setup`")


def _accelerators() -> Iterator[Finding]:
    try:
        check_devices()
    except UserError as error:
        yield Finding("visible devices", "contradicting", False, str(error))
    yield Finding("accelerator", describe_gpus() or "none: SGLang and the learner run on the CPU", True, "")


def _cluster() -> Iterator[Finding]:
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        yield Finding("Ray", "a local one for the time of each run", True, "")
        return
    closed = os.environ.get("RAY_AUTH_MODE") == "token"
    found = f"{address}, {'closed by a token' if closed else 'open to everyone who reaches its ports'}"
    yield Finding("Ray", found, closed, "start it with RAY_AUTH_MODE=token: docs/clusters.md")


def _resources() -> Iterator[Finding]:
    memory = psutil.virtual_memory().available
    free = replace(this_node(), memory=memory)
    problems = capacity(load_recipe("r1"), [free], None, model_shape("tiny")).problems
    yield Finding(
        "memory and CPUs", f"{memory / GIB:.1f} GiB free, {free.cpus:g} CPUs", not problems, "; ".join(problems)
    )
    yield Finding("speed", f"{free.cpus:g} CPUs", free.cpus >= 2, "2 are the least for a bearable speed")
    place = next(path for path in (home(), *home().parents) if path.exists())
    disk = shutil.disk_usage(place).free
    yield Finding("disk", f"{disk / GIB:.0f} GiB free at {place}", disk >= DISK, f"free {DISK / GIB:.0f} GiB")
    writable = os.access(place, os.W_OK)
    remedy = "set RL_POST_HOME to a writable directory"
    yield Finding("run directory", str(home()), writable, remedy)
