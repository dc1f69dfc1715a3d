"""U30: what lets a flow go on without its server. tests/integration/test_deployment.py takes a real one away."""

import inspect
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from prefect import flow_engine
from prefect.concurrency import _leases
from prefect.context import serialize_context
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
    temporary_settings,
)
from prefect.settings.context import get_current_settings

from configs.loader import load_recipe
from tasks.orchestrator.dispatch import stage
from tasks.orchestrator.server_away import outlive_server
from tasks.run.directory import Run
from tasks.run.ledger import create_run


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing listens there, and a renewal of a lease is not tried for long."""
    monkeypatch.setattr(_leases, "_RENEWAL_RETRY_BASE_DELAY", 0.01)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield


def work_with_a_lease() -> str:
    """Do what Prefect's flow engine does of a deployment with a limit."""
    engine = vars(flow_engine)
    with engine["maintain_concurrency_lease"](uuid4(), 300, raise_on_lease_renewal_failure=True):
        deadline = time.monotonic() + 30
        while any("lease-renewal" in thread.name for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return "done"


@pytest.mark.usefixtures("no_server")
def test_u30_a_lease_that_can_not_be_renewed_ends_no_flow() -> None:
    with outlive_server():
        assert work_with_a_lease() == "done"


@pytest.mark.usefixtures("no_server")
def test_without_it_prefect_cancels_the_flow() -> None:
    with pytest.raises(BaseException, match=r"^$") as ended:
        work_with_a_lease()

    assert type(ended.value).__name__ == "CancelledError"


def test_the_flow_engine_maintains_its_lease_by_the_name_that_is_replaced() -> None:
    assert "maintain_concurrency_lease(" in inspect.getsource(flow_engine.FlowRunEngine.setup_run_context)


def test_u30_the_client_asks_again_for_more_than_ten_minutes_in_the_workers_too() -> None:
    with outlive_server():
        retries = PREFECT_CLIENT_MAX_RETRIES.value()
        sent = serialize_context()["settings_context"]["settings"]

    assert sum(2**attempt for attempt in range(1, retries + 1)) > 600 / 0.8  # A wait may be a fifth shorter.
    assert sent["client"]["max_retries"] == retries
    assert sent["client"]["server_version_check_enabled"] is False


def test_more_retries_that_somebody_asked_for_stay_and_all_ends_with_the_flow() -> None:
    before, lease = get_current_settings(), vars(flow_engine)["maintain_concurrency_lease"]
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 20}), outlive_server():
        assert PREFECT_CLIENT_MAX_RETRIES.value() == 20

    assert get_current_settings() == before
    assert PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED.value()
    assert vars(flow_engine)["maintain_concurrency_lease"] is lease


def test_u30_a_stage_asks_for_no_slot_of_a_tag(tmp_path: Path) -> None:
    @stage(name="work", run_name="work", limit=lambda limits: 1.0)
    def work(run: Run) -> str:
        return "done"

    assert work.task.tags == set()  # Prefect asks for slots of these before it calls the body.
    assert work.fn(create_run(tmp_path, load_recipe("r1"))) == "done"
