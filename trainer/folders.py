"""Folders that are either complete or not there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from configs.errors import refused_by_the_disk


@contextmanager
def written_at_once(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write into; it gets the name `folder` when the block ends without an exception.

    A killed writer leaves a hidden `.….tmp` sibling at worst, and so does a crash of the machine: the files are on the
    disk before the name. An existing `folder` is replaced.

    Raises:
        UserError: if the disk is full or can't be written.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid4().hex[:8]}.tmp")
    try:
        with refused_by_the_disk(folder):
            temporary.mkdir(parents=True)
            yield temporary
            put_in_place(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put_in_place(temporary: Path, folder: Path) -> None:
    """Give the complete folder `temporary` the name `folder`, in place of what may be there.

    Files and folders are synced before, the name after it: what is there under its name stays there, whole.
    """
    for path in [*temporary.rglob("*"), temporary]:
        sync(path)
    replaced = folder.with_name(f".{folder.name}.{uuid4().hex[:8]}.old.tmp")
    if folder.exists():
        os.rename(folder, replaced)
    os.rename(temporary, folder)
    sync(folder.parent)
    if replaced.exists():
        shutil.rmtree(replaced)


def sync(path: Path) -> None:
    """Have the disk store a file's content, or a folder's names, before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
