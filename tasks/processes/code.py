"""The project's own code on the workers of a Ray cluster that has never seen it.

Ray uploads the packages once, unpacks them on each node that needs them, and puts the folder first on PYTHONPATH.
Workers, actors with their own environment and the processes that they start then import the driver's code, even if the
image holds an older copy. Python finds two things by the installed package's metadata, so they stay the image's: the
command `rl-post` and the entry point of SGLang's platform for CPUs.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("configs", "flows", "tasks", "trainer")
EVERYTHING = ("/[!.]*", "/.?*")
"""Patterns of .gitignore for all content of a folder, but not for the folder itself, which is `.`."""


def shipped_code(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `ray.init` by which the workers of the cluster in RAY_ADDRESS get this code.

    A local Ray needs none: its workers import what the driver imports.
    """
    if environment.get("RAY_ADDRESS", "local") in ("", "local"):
        return {}
    # As the working directory: without one, Ray puts the driver's current directory first, and the image may hold an
    # older copy there. Bytecode is excluded: with it, equal code would be a different package each time.
    ours = [pattern for package in PACKAGES for pattern in (f"!/{package}", f"!/{package}/**")]
    return {"runtime_env": {"working_dir": str(ROOT), "excludes": [*EVERYTHING, *ours, "__pycache__"]}}


def code_digest(root: Path = ROOT) -> str:
    """Return a hash of code and recipes, 12 hexadecimal digits: by default of the code that this process imports."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted(file for file in (root / package).rglob("*") if file.suffix in (".py", ".yaml")):
            digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
