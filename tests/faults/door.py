"""The way to a server, which can be shut for a while: to those outside, the server is then down."""

import socket
import threading
from contextlib import suppress

from tasks.processes.network import LOOPBACK


class Door:
    """Passes TCP connections on to a port of this machine while it is open."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._passing: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.open()

    def open(self) -> None:
        """Let connections through, at the same port each time."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, self.port))
        listener.listen()
        self.port, self._listener = listener.getsockname()[1], listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        """Refuse new connections and cut those that there are."""
        if self._listener:
            for connection in (self._listener, *list(self._passing)):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
        self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # The listener was closed.
            while True:
                outer, _ = listener.accept()
                try:
                    inner = socket.create_connection((LOOPBACK, self._target))
                except OSError:
                    outer.close()
                    continue
                self._passing |= {outer, inner}
                for source, sink in ((outer, inner), (inner, outer)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for connection in (source, sink):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            self._passing.discard(connection)
