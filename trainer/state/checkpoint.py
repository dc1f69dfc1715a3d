"""Full checkpoints: all tensors of the learner and its version, bit for bit, by any number of ranks."""

import shutil
import warnings
from pathlib import Path

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as load_in_place
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from configs.errors import refused_by_the_disk
from trainer import distributed
from trainer.files import put_in_place
from trainer.state.manifest import damaged_checkpoint, version_of, write_manifest


class IncompleteCheckpoint(RuntimeError):
    """The folder is not a complete checkpoint of this run; nothing was loaded from it."""


def save(folder: Path, state: dict[str, Tensor], version: int, run: str) -> None:
    """Write named tensors to a temporary folder, then rename it. All ranks must call it, each with its shards.

    A manifest with every file's size is written last, so that a file that is later lost or cut is noticed.

    Args:
        folder: Where to.
        state: The tensors.
        version: The weights version.
        run: The hash of recipe and data, which `load` must be given too.

    Raises:
        UserError: if the disk is full or can't be written; no part of the checkpoint is left.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")  # the ranks write into one folder
    try:
        with refused_by_the_disk(folder):
            if distributed.rank() == 0:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            distributed.barrier()
            _write(temporary, state)
            if distributed.rank() == 0:
                write_manifest(temporary, version, run)
                put_in_place(temporary, folder)
    finally:
        if distributed.rank() == 0:
            shutil.rmtree(temporary, ignore_errors=True)
    distributed.barrier()


def _write(folder: Path, state: dict[str, Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one rank needs no process group
        try:
            save_sharded(state, checkpoint_id=folder)
            return
        except CheckpointException as failed:
            cause, _ = next(iter(failed.failures.values()))
    raise cause  # not the wrapping, which is no Exception: the caller would take the rank for dead


def load(folder: Path, state: dict[str, Tensor], run: str) -> int:
    """Overwrite the live tensors of `state` in place, and return the version. All ranks must call it.

    Raises:
        IncompleteCheckpoint: if a file is missing or cut, or it is of another run; the tensors are as before.
    """
    if problem := damaged_checkpoint(folder, run):
        raise IncompleteCheckpoint(f"checkpoint {problem}; load an older checkpoint and replay the steps since")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load_in_place(state, checkpoint_id=folder)
    return version_of(folder)
