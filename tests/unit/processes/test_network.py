"""Ports that stay free until they are used."""

import socket
from contextlib import ExitStack
from multiprocessing import get_context
from urllib.parse import urlsplit

import pytest

from tasks.processes.network import LOOPBACK, interface_of, own_address, reserved_port, url_of
from tests.ipv6 import needs_ipv6


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen()
    return server


def test_a_reserved_port_can_be_listened_on():
    with reserved_port() as port, listen(port), socket.create_connection((LOOPBACK, port)):
        pass


@needs_ipv6
def test_a_port_is_reserved_at_an_ipv6_address_too():
    with reserved_port("::1") as port, listen(port, "::1"), socket.create_connection(("::1", port)):
        pass


@pytest.mark.parametrize(("host", "url"), [("10.0.0.7", "http://10.0.0.7:4001"), ("fd00::1", "http://[fd00::1]:4001")])
def test_an_ipv6_address_is_in_brackets_in_a_url(host: str, url: str):
    assert url_of(host, 4001) == url
    assert urlsplit(url).hostname == host


def test_many_reservations_at_once_are_all_different_and_all_bindable():
    with ExitStack() as stack:
        ports = [stack.enter_context(reserved_port()) for _ in range(500)]
        assert len(set(ports)) == 500
        for port in ports:
            stack.enter_context(listen(port))


def test_the_system_gives_a_reserved_port_to_nobody_else():
    with reserved_port() as port, ExitStack() as stack:
        others = {stack.enter_context(listen(0)).getsockname()[1] for _ in range(500)}
        assert port not in others


def test_without_a_cluster_processes_listen_on_loopback():
    assert own_address() == LOOPBACK


def test_an_address_is_that_of_an_interface_or_of_none():
    assert interface_of(LOOPBACK) == "lo"
    assert interface_of("203.0.113.1") is None  # reserved for documentation, so nobody's


def test_eight_processes_that_ask_at_once_get_eight_ports():
    context = get_context("fork")
    barrier = context.Barrier(8)
    queue = context.Queue()

    def ask() -> None:
        with reserved_port() as port, listen(port):
            queue.put(port)
            barrier.wait(20)  # all hold theirs until all have one

    processes = [context.Process(target=ask) for _ in range(8)]
    for process in processes:
        process.start()
    ports = [queue.get(timeout=20) for _ in processes]
    for process in processes:
        process.join()
    assert len(set(ports)) == 8
