"""Free ports, without the usual race between finding one and using it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a TCP port on the loopback interface for the length of the block.

    The port stays bound, but not listened on: whoever asks the system for any port gets another one, while a server
    that sets SO_REUSEADDR, as nearly all do, can bind this one by its number and listen.

    Raises:
        OSError: if the system has no port left.
    """
    with socket.socket() as reservation:
        reservation.bind((LOOPBACK, 0))
        # Only now: with it set before, the system might hand out a port that another reservation holds.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield reservation.getsockname()[1]
