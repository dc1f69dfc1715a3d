"""An engine that shares its GPU gives its memory back and is asked for nothing until it has weights again.

The server is a fake one: SGLang's memory saver needs a GPU. What it is asked, and in which order, is what counts.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.numpy import load_file, save_file

from configs import schema
from configs.timeouts import Timeouts
from tasks.cluster.devices import Accelerator
from tasks.engine.engine import Engine
from tasks.run.events import read_events
from tasks.server.client import TORN, Endpoint, EngineClient, WeightsNotUpdated
from tasks.weights.from_memory import Sender
from tasks.weights.transports import TRANSPORTS
from tests.faults.harness import FAKE
from trainer.model import tiny_policy
from trainer.state.export import Named

ROOT = Path(__file__).parents[2]
RELEASE = [
    "/pause_generation",
    "/flush_cache?timeout=30",
    "/update_weight_version",
    "/release_memory_occupation:weights:kv_cache:cuda_graph",
]
RESUME_WEIGHTS, RESUME_CACHE = "/resume_memory_occupation:weights", "/resume_memory_occupation:kv_cache:cuda_graph"
GO_ON = [RESUME_CACHE, "/continue_generation"]
FROM_DISK = [RESUME_WEIGHTS, "/update_weights_from_disk", *GO_ON]
SENT = [
    "/update_weight_version",
    "/begin_weight_update",
    "/update_weights_from_tensor",
    "/end_weight_update",
    "/update_weight_version",
]


@dataclass
class Staged:
    """Starts engines on a fake server, and knows what it was asked."""

    tricks: Path
    logs: Path
    weights: Path

    settings = schema.Engine(gpus=1, placement="colocated")

    def engine(self, accelerator: Accelerator) -> Engine:
        recipe = schema.Recipe(
            name="r",
            engine=self.settings,
            learner=schema.Learner(gpus=1),
            timeouts=Timeouts(hang=4, request=30),
        )
        return Engine(0, recipe, self.logs, accelerator)

    def other_weights(self) -> Path:
        """A folder with other weights."""
        folder = self.weights.with_name("other")
        tiny_policy.build(folder)
        file = folder / "model.safetensors"
        save_file({name: 2 * tensor for name, tensor in load_file(file).items()}, file, {"format": "pt"})
        return folder

    def asked(self) -> list[str]:
        """Paths, but for looks at the server's version, weights and health."""
        return [
            path for path in self.all_asked() if path not in ("/model_info", "/weights_checker", "/health_generate")
        ]

    def all_asked(self) -> list[str]:
        """Paths, with the memory that they are about."""
        return self._column(2)

    def server(self) -> psutil.Process:
        return psutil.Process(int(self._column(0)[-1]))

    def lost(self) -> list[str]:
        return [event["why"] for event in read_events(self.logs / "events.jsonl") if event["event"] == "engine lost"]

    def _column(self, number: int) -> list[str]:
        return [line.split()[number] for line in (self.tricks / "requests.log").read_text().splitlines()]


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staged:
    made = Staged(tmp_path / "tricks", tmp_path / "logs", tmp_path / "weights")
    made.tricks.mkdir()
    tiny_policy.build(made.weights)
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}:{ROOT}")
    monkeypatch.setenv("FAKE_SGLANG", str(made.tricks))
    return made


@pytest.fixture
def engine(staged: Staged) -> Iterator[Engine]:
    """Serves version 0."""
    made = staged.engine("nvidia")
    made.start(staged.weights, 0)
    yield made
    made.stop()


def test_what_runs_is_stopped_before_memory_goes_and_weights_are_loaded_before_there_is_a_cache_and_it_goes_on(
    staged: Staged, engine: Engine
):
    engine.release()
    assert staged.asked() == RELEASE

    engine.publish(staged.weights, 1)
    assert staged.asked() == [*RELEASE, *FROM_DISK]
    assert staged.lost() == []


def version_of(engine: Engine) -> int | None:
    report = engine.reports()
    return report and report[1]


def test_a_server_without_weights_reports_no_version(staged: Staged, engine: Engine):
    engine.release()
    assert version_of(engine) == TORN

    engine.publish(staged.weights, 0)
    assert version_of(engine) == 0


class Direct:
    """A way into engines that tells them that there is something."""

    def __init__(self, _: schema.Recipe) -> None: ...
    def prepare(self, engines: Sequence[EngineClient]) -> None: ...
    def drop(self) -> None: ...
    def send(self, engines: Sequence[EngineClient], bucket: Sequence[Named], *, last: bool) -> None:
        for engine in engines:
            engine.command("/update_weights_from_tensor", flush_cache=last)


@pytest.fixture
def send(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> Callable[[Endpoint | None, int], None]:
    """Send a version from memory."""
    monkeypatch.setitem(TRANSPORTS, "tensors", Direct)
    recipe = schema.Recipe(
        name="r",
        engine=staged.settings,
        learner=schema.Learner(gpus=1),
        weight_sync=schema.WeightSync(via="tensors"),
    )

    def send(endpoint: Endpoint | None, version: int) -> None:
        assert endpoint
        Sender(recipe).send(iter([("a", torch.ones(1))]), [4], version, [endpoint])

    return send


def test_weights_from_memory_come_before_there_is_a_cache_and_it_goes_on_when_they_were_checked(
    staged: Staged, engine: Engine, send: Callable[..., None]
):
    engine.release()
    send(engine.await_weights(), 1)
    assert staged.asked() == [*RELEASE, RESUME_WEIGHTS, *SENT]
    assert version_of(engine) == 1

    engine.publish(staged.weights / "nowhere", 1)

    assert staged.asked() == [*RELEASE, RESUME_WEIGHTS, *SENT, *GO_ON]
    assert staged.lost() == []
    watched = len(staged.all_asked())
    wait_until(lambda: "/health_generate" in staged.all_asked()[watched:])


def test_so_they_do_where_the_memory_was_not_released_yet_and_again_after_that(
    staged: Staged, engine: Engine, send: Callable[..., None]
):
    once = [*RELEASE, RESUME_WEIGHTS, *SENT, *GO_ON]
    for version in (1, 2):
        send(engine.await_weights(), version)
        engine.publish(staged.weights / "nowhere", version)

    assert staged.asked() == [*once, *once]


def test_weights_are_sent_again_where_they_were_cut_off_before_they_were_whole(
    staged: Staged, engine: Engine, send: Callable[..., None]
):
    engine.await_weights()
    assert version_of(engine) == TORN

    send(engine.await_weights(), 1)
    engine.publish(staged.weights / "nowhere", 1)

    assert staged.asked() == [*RELEASE, RESUME_WEIGHTS, *SENT, *GO_ON]


def test_memory_that_only_weights_have_is_released_too(staged: Staged, engine: Engine):
    engine.await_weights()

    engine.release()
    engine.publish(staged.weights, 1)

    again = [*RELEASE[:3], "/release_memory_occupation:weights"]
    assert staged.asked() == [*RELEASE, RESUME_WEIGHTS, *again, *FROM_DISK]


@pytest.mark.parametrize("place", [RESUME_WEIGHTS, *SENT[1:4], *GO_ON])
def test_a_server_that_fails_on_the_way_is_replaced_from_disk_and_never_generates_again(
    staged: Staged, engine: Engine, send: Callable[..., None], place: str
):
    engine.release()
    first = staged.server()
    (staged.tricks / "refuse").write_text(place)

    if endpoint := engine.await_weights():
        with suppress(WeightsNotUpdated):
            send(endpoint, 1)
    assert version_of(engine) == (1 if place in GO_ON else None if place == RESUME_WEIGHTS else TORN)
    engine.publish(staged.weights, 1)

    assert version_of(engine) == 1
    assert staged.server() != first
    assert len(staged.lost()) == 1
    assert "/continue_generation" not in staged.asked() or place == "/continue_generation"


def test_an_engine_without_a_server_awaits_nothing(staged: Staged):
    assert staged.engine("nvidia").await_weights() is None


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "did not happen within 20 s"
        time.sleep(0.1)


def test_weights_are_loaded_again_where_the_version_is_the_same_for_they_were_lost(staged: Staged, engine: Engine):
    engine.release()
    engine.publish(staged.weights, 0)

    assert "/update_weights_from_disk" in staged.asked()


def test_both_may_be_asked_twice(staged: Staged, engine: Engine):
    for _ in range(2):
        engine.release()
    for _ in range(2):
        engine.publish(staged.weights, 1)

    assert staged.asked() == [*RELEASE, *FROM_DISK]


def test_a_server_that_cannot_release_is_ended_and_replaced(staged: Staged, engine: Engine):
    engine.publish(staged.weights, 1)
    staged.server().kill()

    engine.release()
    engine.publish(staged.weights, 1)

    assert "did not release its memory" in staged.lost()[0]
    assert RESUME_WEIGHTS not in staged.asked()


def test_a_server_that_gets_no_weights_after_its_release_is_replaced(staged: Staged, engine: Engine):
    engine.release()
    (staged.tricks / "lie").touch()  # it says success and loads nothing

    engine.publish(staged.other_weights(), 1)

    assert ["it has no weights since it released its memory" in why for why in staged.lost()] == [True]
    assert "/continue_generation" not in staged.asked()


def test_an_engine_without_a_server_has_nothing_to_release(staged: Staged):
    staged.engine("nvidia").release()

    assert list(staged.tricks.iterdir()) == []


def test_on_a_cpu_nothing_is_released(staged: Staged):
    engine = staged.engine("cpu")
    engine.start(staged.weights, 0)
    try:
        engine.release()
        assert staged.asked() == []
    finally:
        engine.stop()
