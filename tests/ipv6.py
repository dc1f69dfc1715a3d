"""A mark for tests that listen at an IPv6 address."""

import pytest

from tasks.processes.network import interface_of

needs_ipv6 = pytest.mark.skipif(interface_of("::1") is None, reason="this machine has no IPv6")
