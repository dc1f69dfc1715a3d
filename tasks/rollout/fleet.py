"""Spread requests over engines: an engine takes the next one when it has room, so none waits for a slow engine.

SGLang's own router can't do this: it takes one set of sampling parameters a request, but each sample of a group has its
own seed (sglang-router 0.3.2 refuses the request). A group goes to one engine, which then has its prompt in cache.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self
from uuid import uuid4

from tasks.cluster.limits import ENGINE_LOSSES
from tasks.records.samples import UNFINISHED
from tasks.records.usable import flaw
from tasks.server.client import TORN, EngineClient, EngineRefused, EngineSlow, EngineUnavailable, Response

logger = logging.getLogger(__name__)

ABORT_EVERY = 0.5  # Seconds; repeated, because a server ignores an abort of a request that has not reached it yet.
TRIES = 3  # At a sample whose response can't be used, before it is given up.

NOTHING = Response([], [], UNFINISHED, TORN)
"""Of a sample that was not begun, while others of its request were. It has no tokens, so its version says nothing."""

Answers = list[list[Response]]
"""The responses to each request."""


@dataclass(frozen=True)
class Request:
    """Samples that one engine makes together.

    Attributes:
        prompts: Token ids that each sample goes on from.
        seeds: The sampling seed of each.
        max_tokens: Longest response of each, in tokens.
    """

    prompts: list[list[int]]
    seeds: list[int]
    max_tokens: list[int]


class Fleet:
    """Engines that share requests. Close it when they are done: what engines still generate is then aborted."""

    def __init__(self, connects: Sequence[Callable[[], EngineClient]], in_flight: int) -> None:
        """Prepare for engines; each is connected to by its first request.

        Args:
            connects: For each engine, a function that returns a client of it; it first replaces a lost engine.
            in_flight: Requests that an engine works on at once.
        """
        self._engines = [_Engine(connect) for connect in connects]
        self._in_flight = in_flight

    def generate(
        self,
        requests: Sequence[Request],
        temperature: float,
        wanted: int,
        vocabulary: Container[int] | None = None,
        salvage: Callable[[Answers], None] | None = None,
    ) -> Answers:
        """Have the engines answer requests.

        A response that can't be used is made again, with the same seed: a sound engine then gives what it would have
        given at first. After TRIES it comes back with its `flaw`.

        Args:
            requests: What to generate.
            temperature: Sampling temperature; 0 is greedy.
            wanted: Number of answered requests after which the others are aborted.
            vocabulary: The model's token ids, where they are known.
            salvage: Takes what there is, in the form of what is returned, before an error is raised.

        Returns:
            The responses to each request, in order. An aborted response has the finish reason `abort` and its tokens so
            far. A request that no engine had begun has an empty list.

        Raises:
            EngineUnavailable: an engine was lost again and again.
            EngineSlow: an engine lives, and has not answered in several times the time that it may take.
            EngineRefused: a request is wrong.
            Exception: an engine could not be connected to.
        """
        work = _Work(requests, wanted, vocabulary)
        places = min(len(requests), len(self._engines) * self._in_flight)
        with ThreadPoolExecutor(max(places, 1)) as threads:
            try:
                for place in range(places):
                    threads.submit(work.serve, self._engines[place % len(self._engines)], temperature)
                work.wait()
            finally:
                work.abort()
        if work.error:
            if salvage:
                salvage(work.answers())
            raise work.error
        return work.answers()

    def close(self) -> None:
        """Close the connections."""
        for engine in self._engines:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Engine:
    """An engine as its requests see it: it may be replaced between two of them."""

    def __init__(self, connect: Callable[[], EngineClient]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._client: EngineClient | None = None
        self._losses = 0

    def client(self) -> EngineClient:
        """Return a client of the engine. A lost engine is replaced first."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def lost(self, client: EngineClient, error: EngineUnavailable) -> None:
        """Have the engine replaced at the next request, if that was not done yet.

        Raises:
            EngineUnavailable: it was lost too often.
        """
        with self._lock:
            if self._client is not client:
                return
            self._client = None
            self._losses += 1
        logger.warning("an engine is lost; its requests go to who has room: %s", error)
        if self._losses >= ENGINE_LOSSES:
            raise error

    def close(self) -> None:
        """Close the connection."""
        if self._client:
            self._client.close()


class _Work:
    """The requests of a call: waiting, with an engine, or answered.

    Attributes:
        error: What ended it before there was enough.
    """

    def __init__(self, requests: Sequence[Request], wanted: int, vocabulary: Container[int] | None) -> None:
        self.error: BaseException | None = None
        self._requests, self._wanted, self._vocabulary = requests, min(wanted, len(requests)), vocabulary
        self._waiting = deque(range(len(requests)))
        self._with: dict[int, tuple[EngineClient, list[str]]] = {}
        self._made: list[list[Response | None]] = [[None for _ in request.prompts] for request in requests]
        self._tries = [0] * len(requests)
        self._whole = 0
        self._over = self._wanted == 0
        self._changed = threading.Condition()

    def serve(self, engine: _Engine, temperature: float) -> None:
        """Have an engine answer one request after the other until there is enough."""
        while (number := self._take()) is not None:
            try:
                self._answer(number, engine, temperature)
            except BaseException as error:
                self._fail(error)

    def wait(self) -> None:
        """Wait until there is enough or something failed."""
        with self._changed:
            while not self._over:
                self._changed.wait(timeout=1.0)  # a limit, so that a signal is heard

    def abort(self) -> None:
        """End what engines still work on; it keeps its tokens so far."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            while self._with:
                for client, names in self._with.values():
                    for name in names:
                        with suppress(EngineUnavailable, EngineRefused):
                            client.abort(name)
                self._changed.wait(timeout=ABORT_EVERY)

    def answers(self) -> Answers:
        """Return the responses to each request. Of one that was begun, a sample without a response counts as cut."""
        return [[response or NOTHING for response in made] if any(made) else [] for made in self._made]

    def _take(self) -> int | None:
        with self._changed:
            # A request comes back if its engine is lost, or for what has to be made again.
            while not self._waiting and self._with and not self._over:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting and not self._over else None

    def _answer(self, number: int, engine: _Engine, temperature: float) -> None:
        request, client = self._requests[number], engine.client()
        places = [place for place, response in enumerate(self._made[number]) if response is None]
        names = [uuid4().hex for _ in places]
        with self._changed:
            self._with[number] = client, names
        lost: EngineUnavailable | None = None
        again = False
        try:
            responses = client.generate(
                [request.prompts[place] for place in places],
                [request.seeds[place] for place in places],
                temperature,
                [request.max_tokens[place] for place in places],
                names,
            )
            again = self._keep(number, dict(zip(places, responses, strict=True)))
        except EngineSlow:
            raise
        except EngineUnavailable as error:
            lost = error
        finally:
            self._leave(number, again or lost is not None)
        if lost:
            engine.lost(client, lost)

    def _leave(self, number: int, again: bool) -> None:
        """Note that no engine has a request any more, and queue it again if needed, in one atomic step."""
        with self._changed:
            del self._with[number]
            if again:
                self._waiting.appendleft(number)
            self._changed.notify_all()

    def _keep(self, number: int, responses: dict[int, Response]) -> bool:
        """Keep the responses that can be used. Returns whether others have to be made again."""
        flaws = {
            place: found for place, response in responses.items() if (found := self._flaw(number, place, response))
        }
        usable = {place: response for place, response in responses.items() if place not in flaws}
        aborted = any(response.finish_reason == UNFINISHED for response in usable.values())
        with self._changed:
            for place, response in usable.items():
                if self._over or response.finish_reason != UNFINISHED:
                    self._made[number][place] = response
            if aborted and not self._over:
                raise EngineUnavailable("the engine dropped a request")
            if flaws and self._over:
                return False
            self._tries[number] += 1
            if flaws and self._tries[number] < TRIES:
                logger.warning(
                    "%d responses can't be used and are made again: %s", len(flaws), next(iter(flaws.values()))
                )
                return True
            for place, found in flaws.items():
                self._made[number][place] = replace(responses[place], flaw=found)
            self._whole += not aborted
            self._over = self._over or self._whole >= self._wanted
        return False

    def _flaw(self, number: int, place: int, response: Response) -> str | None:
        longest = self._requests[number].max_tokens[place]
        return response.flaw or flaw(response.ids, response.logprobs, response.finish_reason, self._vocabulary, longest)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = self.error or error
            self._over = True
            self._changed.notify_all()
