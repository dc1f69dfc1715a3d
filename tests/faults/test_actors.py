"""Actors on real Ray: one that hangs is ended and named, one that is being started again is waited for."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from configs.schema import Recipe
from tasks.processes.actors import ActorHangs, actors, ask, find_actor
from tasks.run.directory import Run

pytestmark = pytest.mark.usefixtures("ray_cluster")


RUN = Run(Path("run"), Recipe(name="r"))


class Worker:
    """Does as it is told."""

    def process(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def die(self) -> None:
        os._exit(1)

    def stop(self) -> None:
        pass


@pytest.fixture
def workers() -> Iterator[list[Any]]:
    with actors(RUN, {name: (Worker, {}, {"num_cpus": 0}) for name in ("one", "two")}):
        yield [find_actor(RUN.id, name) for name in ("one", "two")]


def test_all_actors_answer_in_their_order(workers: list[Any]) -> None:
    assert ask(workers, "process", timeout=60) == [ray.get(worker.process.remote()) for worker in workers]


def test_an_actor_that_hangs_is_named_and_comes_back_as_a_new_process(workers: list[Any]) -> None:
    before = ask(workers, "process", timeout=60)
    asked = workers[0].sleep.remote(3600)

    with pytest.raises(ActorHangs, match=r"1 of 2 actors did not answer"):
        ask(workers, "process", timeout=2)

    after = ask(workers, "process", timeout=60)
    assert after[0] != before[0]
    assert after[1] == before[1]
    with pytest.raises(RayError):
        ray.get(asked, timeout=60)


def test_an_actor_that_died_is_waited_for_until_it_is_there_again(workers: list[Any]) -> None:
    before = ask(workers, "process", timeout=60)
    with pytest.raises(RayError):
        ask(workers[:1], "die", timeout=60)

    assert ask(workers, "process", timeout=60)[0] != before[0]
