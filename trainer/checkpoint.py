"""Full checkpoints: weights, optimizer state and version, bit for bit, written and read by any number of ranks."""

import json
import shutil
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load as load_in_place
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded
from torch.optim import AdamW

from trainer import ranks
from trainer.folders import put_in_place

MANIFEST = "manifest.json"


class IncompleteCheckpoint(RuntimeError):
    """The folder is not a complete checkpoint; nothing was loaded from it."""


def adamw(model: nn.Module, betas: tuple[float, float], weight_decay: float) -> AdamW:
    """AdamW with its state of step 0 in place, so that a checkpoint has something to be loaded into.

    AdamW itself would make the same state on its first step. The learning rate is set before each step.
    """
    optimizer = AdamW(model.parameters(), betas=betas, weight_decay=weight_decay)
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": torch.zeros_like(parameter, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
        }
    return optimizer


def save(folder: Path, model: nn.Module, optimizer: AdamW, version: int) -> None:
    """Write a checkpoint to a temporary name, then rename it. All ranks must call it.

    A manifest with every file's size is written last, so that a file that got lost or cut later is noticed.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")  # the ranks write into one folder
    if ranks.own() == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    ranks.wait_for_all()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one rank needs no process group
        save_sharded(_state(model, optimizer), checkpoint_id=temporary)
    if ranks.own() == 0:
        sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
        (temporary / MANIFEST).write_text(json.dumps({"version": version, "sizes": sizes}))
        put_in_place(temporary, folder)
    ranks.wait_for_all()


def load(folder: Path, model: nn.Module, optimizer: AdamW) -> int:
    """Load weights and optimizer state in place, and return the version. All ranks must call it.

    Raises:
        IncompleteCheckpoint: if a file is missing or cut; model and optimizer are as before.
    """
    version = _complete_version(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load_in_place(_state(model, optimizer), checkpoint_id=folder)
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


def _state(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    """The live tensors of model and optimizer, by name; tied parameters once."""
    state = {}
    for name, parameter in model.named_parameters():
        state[name] = parameter.detach()
        state |= {f"{name}.{moment}": value for moment, value in optimizer.state[parameter].items()}
    return state
