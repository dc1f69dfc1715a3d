"""Killable processes with a hard limit for each sample. `worker.py` is their side of the protocol.

A thread can't stop an expression that holds the interpreter's lock, and signals only reach the main thread: a sample
that takes too long is stopped by killing the process that works on it. If a sample makes its process hang, crash or
fill the memory, only that sample is lost.

With w workers, n samples, of which k reach the limit of t seconds, take at most
`(k * (t + r) + (n - k) * c) / w + (t + r) * (1 - 1 / w)` seconds: r is the time to replace a worker, c the usual time
of a sample (Graham 1966, "Bounds for certain multiprocessing anomalies": no worker is idle while samples wait).
benchmarks/scoring-speed.md has measured times.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from configs.errors import UserError
from configs.reward import Part
from configs.timeouts import Timeouts
from tasks.reward.outcome import Answered, Outcome

RENEW = 500  # Samples after which a worker is replaced: symbolic mathematics fills caches.


@dataclass(frozen=True)
class Job:
    """One part of the reward (its index in the pool's parts) of one sample, and the seconds that it may take."""

    part: int
    answered: Answered
    timeout_seconds: float


class WorkerPool:
    """`workers` processes, started at the first job. Safe to use from several threads, which take turns.

    `answer`: seconds that a process may take to start, with its imports, on a busy machine.
    """

    def __init__(self, parts: Sequence[Part], workers: int, memory_mb: int, answer: float = Timeouts().answer) -> None:
        self._settings = {"parts": [part.model_dump(mode="json") for part in parts], "memory_mb": memory_mb}
        self._count, self._answer = workers, answer
        self._idle: list[_Worker] = []
        self._nursery: _Nursery | None = None
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Do each job once and return the outcomes in order.

        Raises:
            UserError: a part can't be set up, e.g. a function of the user's can't be imported.
            OSError: the processes don't start.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = deque(enumerate(jobs))
        busy: dict[_Worker, int] = {}
        with self._lock:
            try:
                while waiting or busy:
                    while waiting and len(busy) < self._count:
                        index, job = waiting.popleft()
                        worker = self._take_worker()
                        busy[worker] = index
                        worker.send(job)
                    for worker in _wait(busy):
                        outcome = outcomes[busy.pop(worker)] = worker.receive()
                        if outcome.failure is None or worker.fit:
                            self._idle.append(worker)
            finally:
                for worker in busy:
                    worker.kill()
        return [outcomes[index] for index in range(len(jobs))]

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._idle.clear()
            if self._nursery:
                self._nursery.close()
                self._nursery = None

    def _take_worker(self) -> "_Worker":
        """Return an idle worker that still lives and isn't too old, else a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.fit:
                return worker
            worker.connection.close()
        if self._nursery:
            try:
                return _Worker(self._nursery.fork(), self._answer)
            except OSError:  # someone killed the nursery
                self._nursery.close()
        self._nursery = _Nursery(self._settings, self._answer)
        return _Worker(self._nursery.fork(), self._answer)


class _Nursery:
    """The process that forks workers. It and the workers end when this side's end of its socket closes."""

    def __init__(self, settings: dict[str, Any], answer: float) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tasks.reward.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                    "PYTHONHASHSEED": "0",  # the same verdict every time
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
            )
        self._socket.settimeout(answer)
        try:
            _write(self._socket, settings)
            reply = _read(self._socket)
        except OSError:
            self.close()
            raise
        if "error" in reply:
            self.close()
            raise UserError(f"reward: {reply['error']}")

    def fork(self) -> socket.socket:
        """Make a worker and return its socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [b"w"], [theirs.fileno()])
        return ours

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class _Worker:
    """A process that does one job at a time."""

    def __init__(self, connection: socket.socket, answer: float) -> None:
        self.connection = connection
        self.deadline = 0.0
        self._done = 0
        connection.settimeout(answer)
        self._pid = _read(connection)["pid"]

    @property
    def fit(self) -> bool:
        """Whether it can take a job: it isn't old, and it lives (a dead worker's socket can be read: its end)."""
        return self.connection.fileno() >= 0 and self._done < RENEW and not _readable([self], 0)

    def send(self, job: Job) -> None:
        """Begin a job. If it can't be sent, `receive` finds out."""
        self._done += 1
        self.deadline = time.monotonic() + job.timeout_seconds
        self.connection.settimeout(job.timeout_seconds)
        with suppress(OSError):
            _write(self.connection, {"part": job.part, "answered": asdict(job.answered)})

    def receive(self) -> Outcome:
        """Return the job's outcome. If there is none past the deadline, kill the process."""
        if not _readable([self], 0):
            self.kill()
            return Outcome(None, "timeout", "it took too long")
        try:
            reply = _read(self.connection)
        except OSError:
            self.connection.close()
            return Outcome(None, "error", "it ended its process")
        if "out_of_memory" in reply:
            self.connection.close()  # this ends the worker: its state is not known
            return Outcome(None, "timeout", "it took too much memory")
        if "error" in reply:
            return Outcome(None, "error", reply["error"])
        return Outcome.of(reply["value"])

    def kill(self) -> None:
        """End it in the middle of a job."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self.connection.close()


def _wait(busy: Iterable[_Worker]) -> list[_Worker]:
    """Return the workers that have answered or are past their deadline; there is at least one."""
    while True:
        first = min(worker.deadline for worker in busy)
        answered = _readable(busy, max(0.0, first - time.monotonic()))
        now = time.monotonic()
        if ended := [worker for worker in busy if worker in answered or worker.deadline <= now]:
            return ended


def _readable(workers: Iterable[_Worker], seconds: float) -> set[_Worker]:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.connection, selectors.EVENT_READ, worker)
        return {key.data for key, _ in selector.select(seconds)}


def _write(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _read(connection: socket.socket) -> dict[str, Any]:
    """Read one message. Raises OSError if the other side ends or is silent for too long."""
    received = b""
    while not received.endswith(b"\n"):
        chunk = connection.recv(65536)
        if not chunk:
            raise ConnectionError("the process ended")
        received += chunk
    return json.loads(received)
