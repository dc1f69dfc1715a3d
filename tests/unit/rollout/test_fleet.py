"""Requests over engines that are fast, slow, dead, or replaced."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tasks.cluster.limits import ENGINE_LOSSES
from tasks.rollout.fleet import TRIES, Fleet, Request
from tasks.server.client import EngineClient, EngineRefused, EngineSlow, EngineUnavailable, Response

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


class Flawed(FakeEngine):
    """Gives the second sample of each request a log-prob that is none, the first `bad` times that it is asked."""

    def __init__(self, name: int, bad: int, flaw: Any = None) -> None:
        super().__init__(name)
        self.bad, self.flaw = bad, flaw
        self.named: list[Sequence[str]] = []
        self.seeds: list[Sequence[int]] = []

    def generate(self, *arguments: Any, **named: Any) -> list[Response]:
        _, seeds, _, _, names = arguments
        self.named.append(names)
        self.seeds.append(seeds)
        responses = super().generate(*arguments, **named)
        if len(self.named) <= self.bad:
            responses[-1] = replace(responses[-1], logprobs=[-0.1, self.flaw])
        return responses


def test_u13_only_what_can_not_be_used_is_made_again_with_its_seed_and_a_new_name() -> None:
    engine = Flawed(1, bad=1)

    (answer,) = fleet_of(engine).generate(requests(0), 1.0, wanted=1)

    assert engine.seeds == [[1, 2], [2]]
    assert len({name for names in engine.named for name in names}) == 3
    assert [(response.ids, response.logprobs, response.flaw) for response in answer] == [
        ([0, 1], [-0.1, -0.1], None)
    ] * 2


@pytest.mark.parametrize("none", [None, float("nan"), float("inf"), 0.5], ids=repr)
def test_u13_what_never_can_be_used_comes_back_with_its_flaw_and_the_others_without(none: Any) -> None:
    engine = Flawed(1, bad=99, flaw=none)

    (answer,) = fleet_of(engine).generate(requests(0), 1.0, wanted=1)

    assert len(engine.named) == TRIES
    assert [response.flaw for response in answer] == [None, f"the log-prob of token 1 is {none!r}"]


def test_an_id_beyond_the_vocabulary_is_made_again_where_the_vocabulary_is_known() -> None:
    (known,) = fleet_of(FakeEngine(12)).generate(requests(0), 1.0, wanted=1, vocabulary=range(12))
    (unknown,) = fleet_of(FakeEngine(12)).generate(requests(0), 1.0, wanted=1)

    assert {response.flaw for response in known} == {"token 1 is 12, none of the vocabulary"}
    assert {response.flaw for response in unknown} == {None}


def test_u34_what_was_made_is_handed_over_before_the_error_that_ends_the_rest() -> None:
    class Refusing(FakeEngine):
        def generate(self, *arguments: Any, **named: Any) -> list[Response]:
            if arguments[0][0][0] == 2:
                raise EngineRefused("400")
            return super().generate(*arguments, **named)

    kept: list[list[list[Response]]] = []

    with pytest.raises(EngineRefused):
        fleet_of(Refusing(1), in_flight=1).generate(requests(0, 1, 2, 3), 1.0, wanted=4, salvage=kept.append)

    assert [first_ids(answers) for answers in kept] == [[0, 1, None, None]]


def test_u34_a_slow_engine_is_not_replaced() -> None:
    class Slow(FakeEngine):
        def generate(self, *arguments: Any, **named: Any) -> list[Response]:
            raise EngineSlow("no answer in 30 s, but it lives")

    connected: list[int] = []

    def connect() -> EngineClient:
        connected.append(1)
        return cast(EngineClient, Slow(1))

    with pytest.raises(EngineSlow):
        Fleet([connect], in_flight=1).generate(requests(0), 1.0, wanted=1)
    assert len(connected) == 1


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
