"""The project's own code on the workers of a Ray cluster that has never seen it.

Ray uploads the packages once, unpacks them on each node that needs them, and puts the folder first on PYTHONPATH:
workers, actors with an environment of their own and the processes that these start all import the driver's code, also
where the image holds an older copy. What Python finds by the installed package's metadata stays the image's: the
command `rl-post`, and SGLang's platform for CPUs, an entry point.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("configs", "flows", "tasks", "trainer")
EVERYTHING = ("/[!.]*", "/.?*")
"""What lies in a folder, as patterns of .gitignore that are not for the folder itself, which is `.`."""


def shipped_code(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `ray.init` by which the workers of the cluster in RAY_ADDRESS get this code.

    A local Ray needs none: its workers import what the driver imports.
    """
    if environment.get("RAY_ADDRESS", "local") in ("", "local"):
        return {}
    # As the working directory: without one, Ray puts the driver's current directory before everything else, where the
    # image may hold that older copy. Bytecode would make the same code another package each time.
    ours = [pattern for package in PACKAGES for pattern in (f"!/{package}", f"!/{package}/**")]
    return {"runtime_env": {"working_dir": str(ROOT), "excludes": [*EVERYTHING, *ours, "__pycache__"]}}


def code_digest(root: Path = ROOT) -> str:
    """Return a hash of code and recipes, 12 hexadecimal digits: by default of those that this process imports."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted(file for file in (root / package).rglob("*") if file.suffix in (".py", ".yaml")):
            digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
