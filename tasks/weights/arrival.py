"""Check that weights arrived: if other weights were sent, the server's tensors must have changed."""

import re
from collections.abc import Callable, Mapping

from tasks.server.client import WeightsUnchanged

_LAYER = re.compile(r"\w+\.\d+\.")
_SHOWN = 3  # Names in an error.


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
        raise _of_before(server, version)


def check_taken(
    server: str,
    version: int,
    before: Mapping[str, str],
    now: Mapping[str, str],
    sent_before: Mapping[str, int],
    sent: Mapping[str, int],
) -> None:
    """Count the names that a server took: what changed among the weights sent must have changed there.

    SGLang passes over a name that it does not know, and says success. It joins some tensors of a layer, as those of
    query, key and value, under a name of its own. So a tensor is looked for by its name, else among those of its layer
    that the server names otherwise.

    Args:
        server: Its URL.
        version: The weights version that it was sent.
        before: The server's checksum of each of its tensors before the transfer.
        now: The same after the server said that it loaded the weights.
        sent_before: A hash of each tensor that it was sent the last time.
        sent: A hash of each tensor that it was sent now, in the number format that the server keeps.

    Raises:
        WeightsUnchanged: names what did not arrive.
    """
    changed = {name for name, print_ in sent.items() if sent_before.get(name) != print_}
    altered = {name for name, checksum in now.items() if before.get(name) != checksum}
    if changed and not altered:
        raise _of_before(server, version)
    joined = {_layer(name) for name in altered if name not in sent}
    lost = sorted(name for name in changed - altered if name in now or _layer(name) not in joined)
    if lost:
        raise WeightsUnchanged(
            f"{server} said that it loaded weights {version}, but took {len(changed) - len(lost)} of {len(changed)} "
            f"tensors that changed; {', '.join(lost[:_SHOWN])} did not arrive. Set weight_sync.via to disk"
        )


def _of_before(server: str, version: int) -> WeightsUnchanged:
    return WeightsUnchanged(f"{server} said that it loaded weights {version}, but its tensors are those of before")


def _layer(name: str) -> str:
    """The layer of a tensor, such as `layers.3.`, whatever stands before it; empty outside the layers."""
    found = _LAYER.search(name)
    return found[0] if found else ""
