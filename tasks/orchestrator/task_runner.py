"""Prefect's task runner on Ray, for a flow that can be told to stop, and that goes on while its server is away.

Prefect's handler of SIGTERM raises in the flow, which then ends its engines and tells the tracker. Two things can stop
that: Ray replaces the handler by its own, and a library that is running may catch the exception and ignore it.
"""

import os
import signal
import socket
import threading
from contextlib import ExitStack, closing, suppress
from typing import Any, Self

from prefect_ray import RayTaskRunner

from tasks.orchestrator.server_away import outlive_server
from tasks.processes.local_ray import connection, prepare_local_ray


class _InterruptibleRayTaskRunner(RayTaskRunner[Any]):
    """Runs a flow's tasks on the Ray that the environment names when the flow begins."""

    def __enter__(self) -> Self:
        """Connect to Ray, or start it, and listen for signals."""
        prepare_local_ray(os.environ)
        self.init_kwargs |= connection(os.environ)
        self._heard: socket.socket | None = None
        self._until_exit = ExitStack()
        # Prefect enters its task runner before it begins to maintain the lease, and leaves it after the flow's end.
        self._until_exit.enter_context(outlive_server())
        handler = signal.getsignal(signal.SIGTERM)
        entered = super().__enter__()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
            self._listen()
        return entered

    def __exit__(self, *error: Any) -> None:
        """Stop listening, and disconnect from Ray."""
        self._until_exit.close()
        super().__exit__(*error)

    def submit(self, *arguments: Any, **named: Any) -> Any:
        """Submit a task, then raise SIGTERM again if it came since the last one."""
        try:
            return super().submit(*arguments, **named)
        finally:
            self._raise_again()

    def _listen(self) -> None:
        """Have Python write each signal's number to a socket, where it stays if the handler's exception is lost."""
        self._heard, told = (self._until_exit.enter_context(closing(end)) for end in socket.socketpair())
        self._heard.setblocking(False)
        told.setblocking(False)
        self._until_exit.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False))

    def _raise_again(self) -> None:
        with suppress(BlockingIOError):
            if self._heard and signal.SIGTERM in self._heard.recv(4096):
                signal.raise_signal(signal.SIGTERM)


def ray_task_runner() -> Any:
    """Return Prefect's task runner on Ray. It connects when a flow begins, to what the environment names then."""
    return _InterruptibleRayTaskRunner()
