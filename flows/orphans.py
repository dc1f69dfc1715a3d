"""Flow runs that nothing runs any more: the machine lost its power, or `make down` came in the middle of them.

Their state would stay Running for ever, and with it they would keep the deployment's concurrency slot: no run after
them would begin.
"""

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

ALIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def close_orphans(api: str, pool: str) -> list[str]:
    """Set the flow runs of a work pool that has no worker to Crashed, and return their names."""
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        orphans = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=ALIVE))),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
        )
        for run in orphans:
            client.set_flow_run_state(run.id, Crashed(message="Its process ended with the services."), force=True)
    return [run.name for run in orphans]
