"""What this machine has, what is missing, and how to get it."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from configs.errors import UserError
from flows.checks import check_devices
from tasks.run.directory import home

PACKAGES = ("prefect", "prefect-ray", "ray", "torch", "sglang", "transformers", "datasets", "mlflow")
MEMORY = 8 * 2**30  # Bytes: Prefect, Ray, MLflow, an SGLang server and a tiny learner together.
DISK = 5 * 2**30


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
        (3, 11) <= sys.version_info[:2] <= (3, 13),
        "install Python 3.11, 3.12 or 3.13 and run `make setup`",
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
    import torch

    try:
        check_devices()
    except UserError as error:
        yield Finding("visible devices", "contradicting", False, str(error))
    if not torch.cuda.is_available():
        yield Finding("accelerator", "none: SGLang and the learner run on the CPU", True, "")
        return
    vendor = "AMD" if torch.version.hip else "NVIDIA"
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    yield Finding("accelerator", f"{torch.cuda.device_count()} x {vendor} {', '.join(names)}", True, "")


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
    yield Finding("memory", f"{memory / 2**30:.1f} GiB free", memory >= MEMORY, f"free {MEMORY / 2**30:.0f} GiB")
    yield Finding("CPUs", str(os.cpu_count()), (os.cpu_count() or 1) >= 2, "2 are the least for a bearable speed")
    place = next(path for path in (home(), *home().parents) if path.exists())
    disk = shutil.disk_usage(place).free
    yield Finding("disk", f"{disk / 2**30:.0f} GiB free at {place}", disk >= DISK, f"free {DISK / 2**30:.0f} GiB")
    writable = os.access(place, os.W_OK)
    remedy = "set RL_POST_HOME to a writable directory"
    yield Finding("run directory", str(home()), writable, remedy)
