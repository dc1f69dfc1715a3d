"""Check that weights arrived: if other weights were sent, the server's tensors must have changed."""

from collections.abc import Callable

from tasks.server.client import WeightsUnchanged


def check_arrival(server: str, version: int, before: str | None, now: str, same_sent: Callable[[], bool]) -> None:
    """Refuse a server whose tensors did not change although other weights were sent.

    A skipped update leaves the weights as they were. The same weights are then sent twice, and nothing changes.

    Args:
        server: Its URL.
        version: The weights version that it was sent.
        before: The server's checksum of its tensors before the transfer; None if it is not known.
        now: The checksum after the server said that it loaded the weights.
        same_sent: Tells whether the same weights were sent the last time.

    Raises:
        WeightsUnchanged: what the server reports can't be trusted any more.
    """
    if now == before and not same_sent():
        raise WeightsUnchanged(f"{server} said that it loaded weights {version}, but its tensors are those of before")
