"""Switches off, or times, what keeps a run safe, in every Python process that benchmarks/overhead.py starts.

Python imports a module of this name when it starts. OVERHEAD is `on` or `off`; seconds go to files in OVERHEAD_LOG.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.run import events
from trainer import files

LABELS = {".parquet": "samples", "batch.json": "write-ahead log", "commit.json": "commits"}
_whole_file, _sha256, _record, _sync = files.whole_file, files.sha256, events.record, files.sync
_inside = threading.local()


@contextmanager
def timed(label: str) -> Iterator[None]:
    """Note the seconds of a block, but for a block within another."""
    if getattr(_inside, "block", False):
        yield
        return
    _inside.block, start = True, time.perf_counter()
    try:
        yield
    finally:
        seconds, _inside.block = time.perf_counter() - start, False
        with open(f"{os.environ['OVERHEAD_LOG']}/{os.getpid()}", "a") as log:
            log.write(f"{time.time()} {seconds} {label}\n")


@contextmanager
def timed_whole_file(path: Path) -> Iterator[Path]:
    """Do as `whole_file`, and note the seconds."""
    label = LABELS.get(path.name) or LABELS.get(path.suffix, "receipts")
    with timed(label), _whole_file(path) as temporary:
        yield temporary


def timed_sha256(path: Path) -> str:
    """Do as `sha256`, and note the seconds."""
    with timed("hashes"):
        return _sha256(path)


def timed_sync(path: Path) -> None:
    """Do as `sync`, and note the seconds."""
    with timed("syncs of weights"):
        _sync(path)


def timed_record(*arguments: Any, **facts: Any) -> None:
    """Do as `record`, and note the seconds."""
    with timed("events"):
        _record(*arguments, **facts)


def no_sha256(path: Path) -> str:
    """Return what stands for a hash of a run's file; those of models and data are kept, since caches go by them."""
    return "0" * 64 if "/runs/" in str(path) else _sha256(path)


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """Yield a name that is renamed to `path`, without a care for crashes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    yield temporary
    temporary.replace(path)


if os.environ["OVERHEAD"] == "on":
    files.whole_file, files.sha256, events.record = timed_whole_file, timed_sha256, timed_record
    files.sync = timed_sync
else:
    files.whole_file, files.sha256 = plain_file, no_sha256
    events.record = lambda *arguments, **facts: None
    files.sync = lambda path: None
