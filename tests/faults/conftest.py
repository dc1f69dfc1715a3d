"""Training runs with a fake engine, and the undisturbed one that all others must equal."""

from collections.abc import Iterator

import pytest

from tests.faults.harness import Harness, Outcome


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with Harness(tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(harness: Harness) -> Outcome:
    return harness.train()
