"""Files and folders that are either whole or not there."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from configs.errors import refused_by_the_disk


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` when the block ends well.

    The file is synced before the rename and its folder after it, so that a crash leaves the old content or the new,
    never a part, and what was reported as written stays written.

    Raises:
        UserError: if the disk is full or the folder can't be written; what was there before is as it was.
    """
    temporary = None
    try:
        with refused_by_the_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
            temporary = Path(name)
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text())


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 digest of a JSON-like value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def remove(path: Path) -> None:
    """Remove a file or a folder if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
