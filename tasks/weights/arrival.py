"""Did weights arrive? A server that says so is believed only if its tensors changed as what was sent did."""

from collections.abc import Callable

from tasks.server.client import WeightsUnchanged


def check_arrival(server: str, version: int, before: str | None, now: str, same_sent: Callable[[], bool]) -> None:
    """Refuse a server whose tensors are those of before, though other weights were sent.

    An update that was skipped leaves weights as they were: then the same are sent twice, and nothing changes.

    Args:
        server: Its URL.
        version: Of the weights that it was sent.
        before: The server's checksum of its tensors before; None where that is not known.
        now: The same after it said that it loaded weights.
        same_sent: Tells whether what was sent is what was sent the time before.

    Raises:
        WeightsUnchanged: what the server reports can't be trusted any more.
    """
    if now == before and not same_sent():
        raise WeightsUnchanged(f"{server} said that it loaded weights {version}, but its tensors are those of before")
