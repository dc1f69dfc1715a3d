"""Full checkpoints: all tensors of the learner and its version, bit for bit, by any number of ranks."""

import json
import shutil
import warnings
from pathlib import Path

from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load as load_in_place
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainer import ranks
from trainer.folders import put_in_place

MANIFEST = "manifest.json"


class IncompleteCheckpoint(RuntimeError):
    """The folder is not a complete checkpoint; nothing was loaded from it."""


def save(folder: Path, state: dict[str, Tensor], version: int) -> None:
    """Write tensors, by name, to a temporary name, then rename it. All ranks must call it, each with its shards.

    A manifest with every file's size is written last, so that a file that got lost or cut later is noticed.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")  # the ranks write into one folder
    if ranks.own() == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    ranks.wait_for_all()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one rank needs no process group
        save_sharded(state, checkpoint_id=temporary)
    if ranks.own() == 0:
        sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
        (temporary / MANIFEST).write_text(json.dumps({"version": version, "sizes": sizes}))
        put_in_place(temporary, folder)
    ranks.wait_for_all()


def load(folder: Path, state: dict[str, Tensor]) -> int:
    """Overwrite the live tensors of `state` in place, and return the version. All ranks must call it.

    Raises:
        IncompleteCheckpoint: if a file is missing or cut; the tensors are as before.
    """
    version = _complete_version(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load_in_place(state, checkpoint_id=folder)
    return version


def _complete_version(folder: Path) -> int:
    advice = "load an older checkpoint and replay the steps since"
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise IncompleteCheckpoint(f"checkpoint {folder} has no {MANIFEST}; {advice}") from None
    except json.JSONDecodeError:
        raise IncompleteCheckpoint(f"checkpoint {folder} has a damaged {MANIFEST}; {advice}") from None
    for name, size in manifest["sizes"].items():
        file = folder / name
        if not file.exists():
            raise IncompleteCheckpoint(f"checkpoint {folder} lacks the file {name}; {advice}")
        if file.stat().st_size != size:
            raise IncompleteCheckpoint(
                f"{name} of checkpoint {folder} has {file.stat().st_size} bytes instead of {size}; {advice}"
            )
    return manifest["version"]
