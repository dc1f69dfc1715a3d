"""End a server that hangs. Its callers then get an error at once, and the next task replaces it.

A hang raises no error by itself. A request may take long, so its time limit can't tell a hang: signs of life can.
"""

import subprocess
import threading
import time
from dataclasses import replace

from tasks.server.client import Endpoint, EngineClient


def end_if_hung(
    endpoint: Endpoint, server: subprocess.Popen[bytes], hang_timeout: float, ended: threading.Event
) -> float | None:
    """Ask a server for signs of life until it ends or hangs; end it if it hangs.

    Args:
        endpoint: Where the server is reached.
        server: The server's guard, which ends the server when the guard's standard input closes.
        hang_timeout: Seconds without a sign of life that mean that it hangs.
        ended: Set when nobody needs the server any more.

    Returns:
        Seconds since the last sign of life if it was found hanging, else None.
    """
    asking = replace(endpoint, timeout=hang_timeout / 2)
    seen = time.monotonic()
    with EngineClient(asking, attempts=1) as client:
        while not ended.wait(hang_timeout / 8) and server.poll() is None:
            silence = time.monotonic() - seen
            if client.is_alive():
                seen = time.monotonic()
            elif silence > hang_timeout and not ended.is_set():
                assert server.stdin
                server.stdin.close()
                return silence
    return None
