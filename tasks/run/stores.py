"""Stores of objects or files, as fsspec addresses them: `s3://bucket/folder`, `gs://…`, `file:///mnt/…`."""

from typing import Any

import fsspec

from configs.addresses import without_user
from configs.errors import UserError


def open_store(address: str) -> tuple[Any, str]:
    """Return a store and a path in it, without a slash at its end.

    Raises:
        UserError: fsspec doesn't know such a store, or the package that it takes is not installed.
    """
    # Unlike an object store, a file store needs its folders made.
    options = {"auto_mkdir": True} if address.startswith(("file://", "local://")) else {}
    try:
        store, path = fsspec.url_to_fs(address, **options)
    except (ValueError, ImportError) as error:
        raise UserError(f"{without_user(address)} can't be used: {error}") from None
    return store, path.rstrip("/")


def check_store(address: str) -> None:
    """Refuse an address that can't be read from here.

    Raises:
        UserError: as `open_store`, or the store refuses access.
    """
    store, path = open_store(address)
    try:
        store.exists(path)
    except Exception as error:  # Each store has its own.
        raise UserError(f"{without_user(address)} can't be read: {without_user(str(error))}") from None
