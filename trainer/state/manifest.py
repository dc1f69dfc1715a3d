"""What a checkpoint folder has to hold. Nothing here imports PyTorch, so that a command can check it fast."""

import json
from pathlib import Path

MANIFEST = "manifest.json"


def write_manifest(folder: Path, version: int, run: str) -> None:
    """Write the weights version, the hash of recipe and data, and the size of every file in the folder."""
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    (folder / MANIFEST).write_text(json.dumps({"version": version, "run": run, "sizes": sizes}))


def version_of(folder: Path) -> int:
    """Return the weights version of a complete checkpoint."""
    return json.loads((folder / MANIFEST).read_text())["version"]


def damaged_checkpoint(folder: Path, run: str) -> str | None:
    """Return what is wrong with a checkpoint, or None. It must be the run's, and its files must have their sizes."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        sizes, of = manifest["sizes"], manifest["run"]
    except FileNotFoundError:
        return f"{folder} has no {MANIFEST}"
    except (OSError, json.JSONDecodeError, KeyError):
        return f"{folder} has a damaged {MANIFEST}"
    if of != run:
        return f"{folder} is of another recipe or dataset"
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file():
            return f"{folder} lacks the file {name}"
        if file.stat().st_size != size:
            return f"{name} of {folder} has {file.stat().st_size} bytes instead of {size}"
    return None
