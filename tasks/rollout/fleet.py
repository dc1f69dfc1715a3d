"""Spread requests over engines: an engine takes the next one when it has room, so none waits for a slow engine.

SGLang's own router can't do this: it takes one set of sampling parameters a request, but each sample of a group has its
own seed (sglang-router 0.3.2 refuses the request). A group goes to one engine, which then has its prompt in cache.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self
from uuid import uuid4

from tasks.cluster.limits import ENGINE_LOSSES
from tasks.server.client import EngineClient, EngineRefused, EngineUnavailable, Response

logger = logging.getLogger(__name__)

ABORT_EVERY = 0.5  # Seconds; repeated, because a server ignores an abort of a request that has not reached it yet.


@dataclass(frozen=True)
class Request:
    """Samples that one engine makes together.

    Attributes:
        prompts: Token ids that each sample goes on from.
        seeds: The sampling seed of each.
        max_tokens: Longest response of each, in tokens.
        ids: Names of the samples at the server, to abort them by.
    """

    prompts: list[list[int]]
    seeds: list[int]
    max_tokens: list[int]
    ids: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", [uuid4().hex for _ in self.prompts])


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

    def generate(self, requests: Sequence[Request], temperature: float, wanted: int) -> list[list[Response]]:
        """Have the engines answer requests.

        Args:
            requests: What to generate.
            temperature: Sampling temperature; 0 is greedy.
            wanted: Number of answered requests after which the others are aborted.

        Returns:
            The responses to each request, in order. An aborted response has the finish reason `abort` and its tokens so
            far. A request that no engine had begun has an empty list.

        Raises:
            EngineUnavailable: an engine was lost again and again.
            EngineRefused: a request is wrong.
            Exception: an engine could not be connected to.
        """
        work = _Work(requests, wanted)
        places = min(len(requests), len(self._engines) * self._in_flight)
        with ThreadPoolExecutor(max(places, 1)) as threads:
            try:
                for place in range(places):
                    threads.submit(work.serve, self._engines[place % len(self._engines)], temperature)
                return work.wait()
            finally:
                work.abort()

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
    """The requests of a call: waiting, with an engine, or answered."""

    def __init__(self, requests: Sequence[Request], wanted: int) -> None:
        self._requests, self._wanted = requests, min(wanted, len(requests))
        self._waiting = deque(range(len(requests)))
        self._with: dict[int, EngineClient] = {}
        self._answers: list[list[Response]] = [[] for _ in requests]
        self._whole = 0
        self._over = self._wanted == 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def serve(self, engine: _Engine, temperature: float) -> None:
        """Have an engine answer one request after the other until there is enough."""
        while (number := self._take()) is not None:
            try:
                self._answer(number, engine, temperature)
            except BaseException as error:
                self._fail(error)

    def wait(self) -> list[list[Response]]:
        """Wait until there is enough or something failed, end the rest, and return the responses to each request."""
        with self._changed:
            while not self._over:
                self._changed.wait(timeout=1.0)  # a limit, so that a signal is heard
        self.abort()
        if self._error:
            raise self._error
        return self._answers

    def abort(self) -> None:
        """End what engines still work on."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            while self._with:
                for number, client in self._with.items():
                    for name in self._requests[number].ids:
                        with suppress(EngineUnavailable, EngineRefused):
                            client.abort(name)
                self._changed.wait(timeout=ABORT_EVERY)

    def _take(self) -> int | None:
        with self._changed:
            # A request comes back if its engine is lost.
            while not self._waiting and self._with and not self._over:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting and not self._over else None

    def _answer(self, number: int, engine: _Engine, temperature: float) -> None:
        request, client = self._requests[number], engine.client()
        with self._changed:
            self._with[number] = client
        lost: EngineUnavailable | None = None
        try:
            responses = client.generate(request.prompts, request.seeds, temperature, request.max_tokens, request.ids)
            self._keep(number, responses)
        except EngineUnavailable as error:
            lost = error
        finally:
            self._leave(number, again=lost is not None)
        if lost:
            engine.lost(client, lost)

    def _leave(self, number: int, again: bool) -> None:
        """Note that no engine has a request any more, and queue it again if needed, in one atomic step."""
        with self._changed:
            del self._with[number]
            if again:
                self._waiting.appendleft(number)
            self._changed.notify_all()

    def _keep(self, number: int, responses: list[Response]) -> None:
        aborted = any(response.finish_reason == "abort" for response in responses)
        with self._changed:
            if aborted and not self._over:
                raise EngineUnavailable("the engine dropped a request")
            self._answers[number] = responses
            self._whole += not aborted
            self._over = self._over or self._whole >= self._wanted

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._over = True
            self._changed.notify_all()
