"""What lets a flow go on while Prefect's server is away: only the pages of Prefect depend on it then.

A flow asks its server for four things while it runs. Slots of tags: a stage gets its tags where no slot is asked for
(`tasks.orchestrator.dispatch`). Its version, in each worker that is new: the flow's own question, at its begin, is
enough. The lease of a deployment's concurrency limit: Prefect cancels a flow that can't renew
it, also one whose server was only restarted, since a server keeps leases in its memory by default. Here such a flow
goes on. Its slot stays taken in the server's database until the flow ends, so that the next run of the deployment waits
as before; only a server that was cut off for longer than the lease (five minutes) gives the slot away. And, at its end,
its state: the client asks again for long enough.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow_engine
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED, temporary_settings

RETRIES = 9
"""Of a request by Prefect's client, which waits 2, 4, 8 … 512 seconds in between: 17 minutes in all."""


@contextmanager
def outlive_server() -> Iterator[None]:
    """Let the flow that is about to begin in this process go on while its server is away."""
    # The flow engine (3.9.1) wants a failure raised, and has no setting for it.
    engine: Any = flow_engine
    maintain = engine.maintain_concurrency_lease
    engine.maintain_concurrency_lease = lambda lease_id, duration, **_: maintain(lease_id, duration)
    # The flow's context takes its settings to the workers.
    settings: dict[Any, Any] = {
        PREFECT_CLIENT_MAX_RETRIES: max(RETRIES, PREFECT_CLIENT_MAX_RETRIES.value()),
        PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False,
    }
    try:
        with temporary_settings(settings):
            yield
    finally:
        engine.maintain_concurrency_lease = maintain
