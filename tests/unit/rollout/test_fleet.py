"""Requests over engines that are fast, slow, dead, or replaced."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tasks.cluster.limits import ENGINE_LOSSES
from tasks.rollout.fleet import Fleet, Request
from tasks.server.client import EngineClient, EngineRefused, EngineUnavailable, Response

STUCK = 99
"""A prompt whose response never ends by itself."""


class FakeEngine:
    """Answers a prompt with its number and the engine's; holds what is stuck until it is aborted."""

    def __init__(self, name: int, fail_first: int = 0) -> None:
        self.name, self.failures = name, fail_first
        self.asked: list[int] = []
        self.at_once = self.most_at_once = 0
        self.aborted: set[str] = set()
        self.closed = False
        self._changed = threading.Condition()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        temperature: float,
        max_tokens: Sequence[int],
        ids: Sequence[str],
    ) -> list[Response]:
        with self._changed:
            self.asked.append(prompts[0][0])
            if self.failures:
                self.failures -= 1
                raise EngineUnavailable(f"engine {self.name} is down")
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._changed.wait(timeout=0.02)
            while prompts[0][0] == STUCK and not self.aborted.issuperset(ids):
                self._changed.wait()
            self.at_once -= 1
        if prompts[0][0] == STUCK:
            return [Response([self.name], [-0.1], "abort", 0) for _ in prompts]
        return [Response([prompt[0], self.name], [-0.1, -0.1], "stop", 0) for prompt in prompts]

    def abort(self, name: str) -> None:
        with self._changed:
            self.aborted.add(name)
            self._changed.notify_all()

    def close(self) -> None:
        self.closed = True


def fleet_of(*engines: FakeEngine, in_flight: int = 2) -> Fleet:
    connects = [lambda engine=engine: cast(EngineClient, engine) for engine in engines]
    return Fleet(connects, in_flight)


def requests(*prompts: int) -> list[Request]:
    return [Request([[prompt], [prompt]], [1, 2], [8, 8]) for prompt in prompts]


def first_ids(answers: list[list[Response]]) -> list[int | None]:
    return [answer[0].ids[0] if answer else None for answer in answers]


def test_answers_come_in_the_order_of_the_requests() -> None:
    answers = fleet_of(FakeEngine(1), FakeEngine(2)).generate(requests(*range(20)), 1.0, wanted=20)

    assert first_ids(answers) == list(range(20))
    assert all(len(answer) == 2 for answer in answers)


def test_an_engine_has_at_most_so_many_requests_at_once() -> None:
    engine = FakeEngine(1)

    fleet_of(engine, in_flight=3).generate(requests(*range(12)), 1.0, wanted=12)

    assert engine.most_at_once == 3


def test_a_slow_engine_gets_no_more_than_it_can_take() -> None:
    slow, fast = FakeEngine(1), FakeEngine(2)

    fleet_of(slow, fast, in_flight=1).generate(requests(STUCK, *range(10)), 1.0, wanted=10)

    assert slow.asked == [STUCK]
    assert sorted(fast.asked) == list(range(10))


def test_what_an_engine_lost_is_answered_once_by_who_has_room() -> None:
    shaky, sound = FakeEngine(1, fail_first=1), FakeEngine(2)

    answers = fleet_of(shaky, sound, in_flight=1).generate(requests(*range(10)), 1.0, wanted=10)

    assert first_ids(answers) == list(range(10))
    assert len(shaky.asked) + len(sound.asked) == 11


def test_a_lost_engine_is_connected_to_again_before_its_next_request() -> None:
    lives = iter([FakeEngine(1, fail_first=9), FakeEngine(2)])
    answers = Fleet([lambda: cast(EngineClient, next(lives))], in_flight=4).generate(requests(0, 1, 2), 1.0, wanted=3)

    assert [answer[0].ids for answer in answers] == [[0, 2], [1, 2], [2, 2]]


def test_an_engine_that_is_lost_again_and_again_is_an_error() -> None:
    lives: list[FakeEngine] = []

    def connect() -> EngineClient:
        lives.append(FakeEngine(len(lives), fail_first=9))
        return cast(EngineClient, lives[-1])

    with pytest.raises(EngineUnavailable, match="is down"):
        Fleet([connect], in_flight=1).generate(requests(0), 1.0, wanted=1)
    assert len(lives) == ENGINE_LOSSES


def test_what_a_server_dropped_by_itself_is_asked_again() -> None:
    class Dropping(FakeEngine):
        def generate(self, *arguments: Any, **named: Any) -> list[Response]:
            responses = super().generate(*arguments, **named)
            dropped = len(self.asked) == 1
            return [replace(response, finish_reason="abort") for response in responses] if dropped else responses

    (answer,) = fleet_of(Dropping(1)).generate(requests(0), 1.0, wanted=1)

    assert {response.finish_reason for response in answer} == {"stop"}


def test_a_refused_request_ends_the_others_too() -> None:
    class Refusing(FakeEngine):
        def generate(self, *arguments: object, **named: object) -> list[Response]:
            raise EngineRefused("400")

    stuck = FakeEngine(1)

    with pytest.raises(EngineRefused):
        fleet_of(stuck, Refusing(2), in_flight=1).generate(requests(STUCK, 0), 1.0, wanted=2)
    assert len(stuck.aborted) == 2


def test_when_there_is_enough_the_rest_is_aborted_and_keeps_what_there_is_of_it() -> None:
    engine = FakeEngine(7)

    answers = fleet_of(engine).generate(requests(STUCK, 0, 1, 2, 3), 1.0, wanted=3)

    assert answers[0][0].finish_reason == "abort"
    assert answers[0][0].ids == [7]
    assert first_ids(answers)[1:4] == [0, 1, 2]


def test_what_was_not_begun_has_no_answer() -> None:
    answers = fleet_of(FakeEngine(1), in_flight=1).generate(requests(0, 1, 2, 3), 1.0, wanted=2)

    assert first_ids(answers) == [0, 1, None, None]


def test_nothing_wanted_asks_nothing() -> None:
    engine = FakeEngine(1)

    assert fleet_of(engine).generate(requests(0, 1), 1.0, wanted=0) == [[], []]
    assert fleet_of(engine).generate([], 1.0, wanted=0) == []
    assert engine.asked == []


def test_closing_closes_every_connection_that_was_made() -> None:
    used, unused = FakeEngine(1), FakeEngine(2)

    with fleet_of(used, unused, in_flight=1) as fleet:
        fleet.generate(requests(0), 1.0, wanted=1)

    assert (used.closed, unused.closed) == (True, False)
