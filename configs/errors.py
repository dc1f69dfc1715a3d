"""Errors that are the user's to correct."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_USE_TO_TRY_AGAIN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


class UserError(ValueError):
    """A mistake in what the user gave us: shown without a traceback."""


@contextmanager
def refused_by_the_disk(path: Path) -> Iterator[None]:
    """Tell the user where the disk is full or can't be written. Whoever writes keeps what was there before.

    Raises:
        UserError: names `path`, in place of the error of whatever library met it; other errors pass.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        code = next((code for code in _codes(error) if code in _NO_USE_TO_TRY_AGAIN), None)
        if code is None:
            raise
        raise UserError(
            f"can't write {path}: {os.strerror(code)}. What was written before is intact; make room or make it "
            "writable, and go on with `rl-post resume`"
        ) from error


def _codes(error: BaseException | None) -> Iterator[int | None]:
    """The system's codes of an error and of those that it was raised from or while another was handled."""
    while error:
        said = re.search(r"os error (\d+)", str(error))  # as libraries in Rust say it
        yield error.errno if isinstance(error, OSError) else int(said[1]) if said else None
        error = error.__cause__ or error.__context__
