"""When ranks meet again, and when engines have to make room for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Recipe
from tasks.processes import actors, learner_group
from tasks.run.directory import Run


class Rank:
    def __init__(self, *held: int, group: str | None = "first") -> None:
        self._held, self._group = held, group

    def held(self) -> tuple[int, ...]:
        return self._held

    def group(self) -> str | None:
        return self._group

    def address(self) -> str:
        return "second"

    def join(self, address: str, ranks: int) -> None:
        self._held, self._group = (), address


class Stage:
    """Ranks of a run, and how often engines made room for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ranks: Rank) -> None:
        self.ranks, self.turns = dict(zip(("learner-0", "learner-1"), ranks, strict=False)), 0
        shared = {
            "engine": {"count": len(ranks), "gpus": 1, "placement": "colocated"},
            "learner": {"ranks": len(ranks), "gpus": 1},
        }
        self.run = Run(Path("r"), Recipe.model_validate({"name": "r", **shared}))

        def ask(actors: Sequence[Any], method: str, *arguments: Any, timeout: float) -> list[Any]:
            return [getattr(actor, method)(*arguments) for actor in actors]

        def take_turn(*_: Any) -> None:
            self.turns += 1

        monkeypatch.setattr(actors, "find_actor", lambda _, name: self.ranks[name])
        monkeypatch.setattr(learner_group, "offered", lambda: {"GPU": float(len(ranks))})
        monkeypatch.setattr(learner_group, "ask", ask)
        monkeypatch.setattr(learner_group, "take_turn", take_turn)

    def met(self, version: int | None = None) -> set[str | None]:
        """The groups of the ranks."""
        return {rank.group() for rank in learner_group.learner_ranks(self.run, version)}


def test_for_an_update_engines_make_room(monkeypatch: pytest.MonkeyPatch):
    stage = Stage(monkeypatch, Rank(2, 3))

    stage.met()

    assert stage.turns == 1


@pytest.mark.parametrize(("version", "turns"), [(2, 0), (1, 1)], ids=["in memory", "by replay"])
def test_for_weights_engines_make_room_only_where_they_have_to_be_computed(
    monkeypatch: pytest.MonkeyPatch, version: int, turns: int
):
    stage = Stage(monkeypatch, Rank(2, 3), Rank(2, 3))

    stage.met(version)

    assert stage.turns == turns


@pytest.mark.parametrize(
    ("second", "groups"),
    [
        (Rank(2, 3), {"first"}),
        (Rank(group=None), {"second"}),
        (Rank(2, 3, group="other"), {"second"}),
        (Rank(), {"second"}),
    ],
    ids=["all is well", "one is new", "one met others", "one failed in an update"],
)
def test_ranks_that_are_not_in_the_same_state_meet_again(
    monkeypatch: pytest.MonkeyPatch, second: Rank, groups: set[str]
):
    stage = Stage(monkeypatch, Rank(2, 3), second)

    assert stage.met(3) == groups


def test_one_rank_on_a_gpu_of_its_own_is_asked_nothing_for_it_may_be_busy(monkeypatch: pytest.MonkeyPatch):
    stage = Stage(monkeypatch, Rank())
    stage.run = Run(Path("r"), Recipe(name="r"))
    monkeypatch.setattr(learner_group, "ask", None)

    assert stage.met() == {"first"}
    assert stage.turns == 0
