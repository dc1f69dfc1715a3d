"""A server that is away costs a run at most a tenth of its time."""

import pytest

from tasks.tracking import away
from tasks.tracking.away import Sparing


class Clock:
    """Time that passes only when somebody waits."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(away, "time", clock)
    return clock


@pytest.mark.parametrize("costs", [0.01, 1.0, 30.0])
def test_calls_that_fail_take_a_tenth_of_the_time_however_long_each_takes(clock: Clock, costs: float) -> None:
    sparing, waited = Sparing(), 0.0

    def fail() -> None:
        nonlocal waited
        clock.now += costs
        waited += costs
        raise OSError("away")

    for _ in range(1000):
        sparing.try_to(fail, lambda _: None)
        clock.now += costs  # what a step takes

    assert 0 < waited / (clock.now - 1000.0) <= 0.1 + 0.01


def test_one_that_must_go_now_is_not_spared_and_a_call_that_goes_well_ends_the_rest(clock: Clock) -> None:
    sparing, told = Sparing(), []

    def fail() -> None:
        clock.now += 10
        raise OSError("away")

    assert not sparing.try_to(fail, told.append)
    assert not sparing.try_to(lambda: None, told.append)  # spared
    assert sparing.try_to(lambda: None, told.append, now=True)
    assert sparing.try_to(lambda: None, told.append)
    assert len(told) == 1


def test_each_absence_is_told_once(clock: Clock) -> None:
    sparing, told = Sparing(), []

    def fail() -> None:
        raise OSError("away")

    for call in (fail, fail, lambda: None, fail, fail):
        sparing.try_to(call, told.append)

    assert len(told) == 2
