"""Services that the tests of a module share: started once, when one asks for it, and gone for the next module."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.contract")
# How long an example takes says nothing about whether the code is right.
settings.register_profile("rl-post", deadline=None)
settings.load_profile("rl-post")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def prefect_server() -> Iterator[None]:
    """A real Prefect server with a database of its own."""
    from prefect.testing.utilities import prefect_test_harness

    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A real local Ray cluster, which flows find and leave running."""
    from tasks.orchestrator.task_runner import ray_task_runner

    os.environ["PYTHONPATH"] = str(ROOT)  # Ray's workers import the tests' own tasks.
    with ray_task_runner():
        yield
