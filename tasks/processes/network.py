"""Where processes listen: on which interface, and on free ports that no other process can take first."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """Return the address at which the cluster's processes reach this node.

    It is the loopback address if there is one node or no Ray, else the node's address in Ray.
    """
    import ray

    if not ray.is_initialized() or sum(node["Alive"] for node in ray.nodes()) <= 1:
        return LOOPBACK
    return ray.util.get_node_ip_address()


def url_of(host: str, port: int) -> str:
    """Return the URL of a server; an IPv6 address is in brackets there (RFC 3986, section 3.2.2)."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def interface_of(address: str) -> str | None:
    """Return the name of the network interface of this machine that has an address; None if none has."""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, own in interfaces if any(entry.address == address for entry in own)), None)


@contextmanager
def reserved_port(host: str = LOOPBACK) -> Iterator[int]:
    """Reserve a TCP port at an address of this machine for the length of the block.

    The port stays bound, but not listened on. A process that asks the system for any port gets another one. A server
    that sets SO_REUSEADDR, as nearly all do, can bind this one by its number and listen.

    Raises:
        OSError: if the system has no port left.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as reservation:
        reservation.bind((host, 0))
        # Only after `bind`: else the system might hand out a port that another reservation holds.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield reservation.getsockname()[1]
