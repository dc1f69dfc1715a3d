"""How weights get to engines that run, that are lost, and that a change of their weights was cut off in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Recipe
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.server.client import TORN, Endpoint
from tasks.weights import publication
from trainer.files import write_json


class Engine:
    """Reports a version, or nothing where it is lost; a lost one starts from a folder."""

    def __init__(self, version: int | None) -> None:
        self.version = version
        self.endpoint = Endpoint("http://here:1", "key")
        self.published: list[Path] = []
        self.waits = False

    def reports(self) -> tuple[Endpoint, int] | None:
        return None if self.version is None else (self.endpoint, self.version)

    def await_weights(self) -> Endpoint | None:
        self.waits = self.version not in (None, TORN)
        return self.endpoint if self.waits else None

    def publish(self, folder: Path, version: int) -> Endpoint:
        if self.version != version:
            assert folder.exists()
            self.published.append(folder)
        self.version = version
        return self.endpoint


class Learner:
    """Sends weights to the engines that it is given, or fails in it, and writes them."""

    def __init__(self, run: Run, engines: Sequence[Engine]) -> None:
        self.run, self.engines, self.fails = run, engines, False
        self.sent: list[int] = []
        self.written: list[int] = []

    def hold(self, version: int, policy: str) -> None:
        assert Path(policy).name == "start"
        assert not any(engine.waits for engine in self.engines)

    def host(self) -> str:
        return "here"

    def send_weights(self, version: int, policy: str, shares: Sequence[Sequence[Endpoint]]) -> str | None:
        (endpoints,) = shares
        for engine in self.engines:
            if engine.waits and engine.endpoint in endpoints:
                engine.version = TORN if self.fails else version
        if self.fails:
            return "an engine was lost"
        self.sent.append(len(endpoints))
        return None

    def save_weights(self, version: int, policy: str) -> None:
        self.written.append(version)
        self.run.weights(version).mkdir(parents=True)


class Stage:
    """A run at step 3 of 10, with a learner and engines, by way of memory unless told otherwise."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, *versions: int | None, via: str = "broadcast"
    ) -> None:
        recipe = Recipe(name="r", steps=10, weight_sync={"via": via})  # pyright: ignore[reportArgumentType]
        self.run = Run(root, recipe)
        (root / "start").mkdir()
        write_json(self.run.step_file(0, "policy.json"), {"folder": str(root / "start")})
        self.engines = [Engine(version) for version in versions]
        self.learner = Learner(self.run, self.engines)

        def ask(actors: Sequence[Any], method: str, *arguments: Any, timeout: float) -> list[Any]:
            return [getattr(actor, method)(*arguments) for actor in actors]

        monkeypatch.setattr(publication, "ask", ask)
        monkeypatch.setattr(publication, "learner_ranks", lambda run, version: [self.learner])

    def publish(self, version: int) -> None:
        publication.sync_from_memory(self.run, version, self.engines)
        publication.bring_up(self.run, version, self.engines)
        assert [engine.version for engine in self.engines] == [version] * len(self.engines)

    def from_disk(self) -> list[bool]:
        return [bool(engine.published) for engine in self.engines]


def test_engines_that_run_get_weights_from_memory_and_nothing_is_written(tmp_path: Path, monkeypatch):
    stage = Stage(tmp_path, monkeypatch, 2, 2)

    stage.publish(3)

    assert stage.learner.sent == [2]
    assert stage.learner.written == []


def test_a_version_that_is_kept_is_written_too(tmp_path: Path, monkeypatch):
    stage = Stage(tmp_path, monkeypatch, 9)

    stage.publish(10)

    assert stage.learner.written == [10]
    assert stage.from_disk() == [False]


@pytest.mark.parametrize("lost", [None, TORN], ids=["lost", "cut off"])
def test_a_lost_engine_starts_from_weights_that_are_written_for_it(tmp_path: Path, monkeypatch, lost: int | None):
    stage = Stage(tmp_path, monkeypatch, 2, lost)

    stage.publish(3)

    assert stage.learner.sent == [1]
    assert stage.learner.written == [3]
    assert stage.from_disk() == [False, True]


def test_engines_that_an_update_failed_in_are_brought_up_from_disk_and_the_run_s_story_tells_it(
    tmp_path: Path, monkeypatch
):
    stage = Stage(tmp_path, monkeypatch, 2, 2)
    stage.learner.fails = True

    stage.publish(3)

    assert stage.from_disk() == [True, True]
    (event,) = read_events(stage.run.events)
    assert (event["event"], event["version"], event["why"]) == ("weights not sent", 3, "an engine was lost")


def test_an_engine_that_no_rank_can_reach_through_memory_gets_its_weights_by_disk_and_the_run_s_story_tells_it(
    tmp_path: Path, monkeypatch
):
    stage = Stage(tmp_path, monkeypatch, 2, 2, via="tensors")
    stage.engines[1].endpoint = Endpoint("http://elsewhere:1", "key")

    stage.publish(3)

    assert stage.learner.sent == [1]
    assert stage.from_disk() == [False, True]
    (event,) = read_events(stage.run.events)
    assert event["why"] == "no rank of the learner is on the node of http://elsewhere:1"


@pytest.mark.parametrize(
    ("via", "expected"),
    [
        ("broadcast", ([["a0", "b0", "a1", "c0"], [], [], []], [])),
        ("tensors", ([["a0", "a1"], [], ["b0"], []], ["c0"])),
    ],
)
def test_one_rank_broadcasts_to_all_and_through_shared_memory_the_first_of_each_node_sends_to_those_on_it(
    via: str, expected: tuple[list[list[str]], list[str]]
):
    hosts = {"a": "10.0.0.1", "b": "fd00::2", "c": "10.0.0.3"}
    engines = {
        "a0": Endpoint("http://10.0.0.1:1", "key"),
        "b0": Endpoint("http://[fd00::2]:1", "key"),
        "a1": Endpoint("http://10.0.0.1:2", "key"),
        "c0": Endpoint("http://10.0.0.3:1", "key"),
    }
    names = {endpoint: name for name, endpoint in engines.items()}

    shares, left = publication.deal(via, [hosts[node] for node in "aabb"], list(engines.values()))

    assert ([[names[engine] for engine in share] for share in shares], [names[engine] for engine in left]) == expected


def test_publishing_again_does_nothing(tmp_path: Path, monkeypatch):
    stage = Stage(tmp_path, monkeypatch, 3, 3)

    stage.publish(3)

    assert (stage.learner.sent, stage.learner.written, stage.from_disk()) == ([], [], [False, False])


def test_by_disk_the_weights_are_there_and_the_learner_is_not_asked(tmp_path: Path, monkeypatch):
    stage = Stage(tmp_path, monkeypatch, 2, via="disk")
    stage.run.weights(3).mkdir(parents=True)

    publication.bring_up(stage.run, 3, stage.engines)  # pyright: ignore[reportArgumentType]

    assert stage.from_disk() == [True]
    assert stage.learner.written == []
