"""One driver a run: a lock with its owner's name and a heartbeat.

The owner touches the lock every few seconds. Another process can tell without a clock whether the owner is alive: on
the same machine by the owner's process, elsewhere by watching whether the lock's modification time changes. Two times
of day are never compared, so a clock that is set back, or differs between two machines, does no harm.
"""

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from configs.errors import UserError
from tasks.run.directory import Run
from tasks.run.events import record
from tasks.run.ledger import read_record
from trainer.files import write_json

logger = logging.getLogger(__name__)

SIGNS = 6  # Signs of life in `timeouts.silence`, after which a silent owner on another machine counts as dead.
Owner = dict[str, Any]


class LockLost(RuntimeError):
    """Another driver took the run over, because this one gave no sign of life for a while."""


class Lock:
    """A run's lock, held by this process."""

    def __init__(self, run: Run) -> None:
        self._run, self._path = run, run.lock
        self._owner = this_process()

    def check(self) -> None:
        """Check that this process is still the owner; called before each commit.

        Raises:
            LockLost: if the run is now another driver's.
        """
        owner = read_owner(self._run)
        if owner != self._owner:
            raise LockLost(
                f"{self._run.id} was taken over by {describe(owner)}: this process gave no sign of life for "
                f"{self._run.recipe.timeouts.silence:g} s. Nothing is committed any more from here"
            )

    def keep(self, ended: threading.Event) -> None:
        """Give signs of life until `ended` is set or another process has the lock."""
        while not ended.wait(self._run.recipe.timeouts.silence / SIGNS):
            try:
                if read_owner(self._run) != self._owner:
                    return
                os.utime(self._path)  # needs no room on the disk
            except OSError as error:
                logger.warning("no sign of life in %s: %s", self._path, error.strerror)

    def take(self) -> None:
        """Make this process the owner, unless another one is alive."""
        with _alone(self._run):
            owner = read_owner(self._run)
            if owner is not None:
                if is_alive(self._run, owner):
                    raise _taken(self._run, owner)
                logger.warning("%s was held by %s, which is dead: taken over", self._run.id, describe(owner))
                record(self._run.events, "lock taken over", owner=describe(owner))
            write_json(self._path, self._owner)

    def release(self) -> None:
        """Give the lock back if it is still this process's."""
        with suppress(OSError):
            if read_owner(self._run) == self._owner:
                self._path.unlink()


@contextmanager
def hold(run: Run) -> Iterator[Lock]:
    """Hold a run's lock for the length of the block.

    Raises:
        UserError: if a living driver has it: says who; or if the run directory can't be written.
    """
    lock, ended = Lock(run), threading.Event()
    lock.take()
    heart = threading.Thread(target=lock.keep, args=(ended,), name="lock-heartbeat", daemon=True)
    heart.start()
    try:
        yield lock
    finally:
        ended.set()
        heart.join()
        lock.release()


def check_free(run: Run) -> None:
    """Refuse a run that a process of this machine is running, before anything starts.

    Raises:
        UserError: says who.
    """
    owner = read_owner(run)
    if owner and lives_here(owner):
        raise _taken(run, owner)


def read_owner(run: Run) -> Owner | None:
    """Return who holds a run's lock, dead or alive.

    Raises:
        UserError: if the lock is damaged.
    """
    try:
        return read_record(run.lock, "host", "place", "pid", "started")
    except FileNotFoundError:
        return None
    except UserError as error:
        raise UserError(f"{error}. Remove it if no process runs {run.id}") from None


def is_alive(run: Run, owner: Owner) -> bool:
    """Tell whether a lock's owner lives: at once if it is on this machine, else within `timeouts.silence`."""
    here = lives_here(owner)
    if here is not None:
        return here
    silence = run.recipe.timeouts.silence
    logger.warning("%s is held by %s: waiting %g s for a sign of life", run.id, describe(owner), silence)
    seen, deadline = run.lock.stat().st_mtime_ns, time.monotonic() + silence
    while time.monotonic() < deadline:
        time.sleep(min(1.0, silence))
        with suppress(FileNotFoundError):
            if run.lock.stat().st_mtime_ns != seen:
                return True
    return False


def lives_here(owner: Owner) -> bool | None:
    """Tell whether an owner is a living process of this machine, or None if it is of another one."""
    return _start_of(owner["pid"]) == owner["started"] if owner["place"] == _place() else None


def this_process() -> Owner:
    """Return an owner that is unique to this process and to this taking of a lock."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "place": _place(),
        "pid": pid,
        "started": _start_of(pid),
        "token": uuid4().hex,
    }


def describe(owner: Owner | None) -> str:
    """Name an owner for a reader."""
    return f"process {owner['pid']} on {owner['host']}" if owner else "nobody"


def _taken(run: Run, owner: Owner) -> UserError:
    return UserError(f"{run.id} is being run by {describe(owner)}. Let it end, or end it, and resume then")


def _place() -> str:
    """Return the scope in which process ids are unique: one boot of one machine and, in it, one container."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _start_of(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None if there is none. Process ids are reused.

    psutil gives the time of day, which moves when the clock is set.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])  # fields 3 and 22 of proc_pid_stat(5)


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Let one process at a time look at the lock and take it. The system ends this when the process ends."""
    try:
        with (run.root / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise UserError(f"{run.id} is just being taken by another process; try again in a moment") from None
    except OSError as error:
        raise UserError(
            f"can't write the run directory {run.root}: {error.strerror}. Make it writable, or resume where it is"
        ) from None
