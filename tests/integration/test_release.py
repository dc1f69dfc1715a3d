"""An engine that shares its GPU gives its memory back and is asked for nothing until it has weights again.

The server is a fake one: SGLang's memory saver needs a GPU. What it is asked, and in which order, is what counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from safetensors.numpy import load_file, save_file

from configs import schema
from tasks.rollout.engine import Engine
from tasks.runtime.accelerator import Accelerator
from tasks.runtime.events import read_events
from tests.faults.harness import FAKE
from trainer import tiny_policy

ROOT = Path(__file__).parents[2]
RELEASE = ["/pause_generation", "/flush_cache?timeout=30", "/release_memory_occupation"]
RESUME = ["/resume_memory_occupation", "/update_weights_from_disk"]


@dataclass
class Staged:
    """Starts engines on a fake server, and knows what it was asked."""

    tricks: Path
    logs: Path
    weights: Path

    def engine(self, accelerator: Accelerator) -> Engine:
        settings = schema.Engine(gpus=1, placement="colocated", hang_timeout=4, request_timeout=30)
        return Engine(0, settings, schema.Model(), self.logs, accelerator, seed=0)

    def other_weights(self) -> Path:
        """A folder with other weights."""
        folder = self.weights.with_name("other")
        tiny_policy.build(folder)
        file = folder / "model.safetensors"
        save_file({name: 2 * tensor for name, tensor in load_file(file).items()}, file, {"format": "pt"})
        return folder

    def asked(self) -> list[str]:
        """Paths, but for looks at the server's version, weights and health."""
        return [path for path in self._column(2) if path not in ("/model_info", "/weights_checker", "/health_generate")]

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


def test_what_runs_is_stopped_before_memory_goes_and_weights_are_loaded_before_it_goes_on(
    staged: Staged, engine: Engine
):
    engine.release()
    assert staged.asked() == RELEASE

    engine.publish(staged.weights, 1)
    assert staged.asked() == [*RELEASE, *RESUME, "/continue_generation"]
    assert staged.lost() == []


def test_weights_are_loaded_again_where_the_version_is_the_same_for_they_were_lost(staged: Staged, engine: Engine):
    engine.release()
    engine.publish(staged.weights, 0)

    assert "/update_weights_from_disk" in staged.asked()


def test_both_may_be_asked_twice(staged: Staged, engine: Engine):
    for _ in range(2):
        engine.release()
    for _ in range(2):
        engine.publish(staged.weights, 1)

    assert staged.asked() == [*RELEASE, *RESUME, "/continue_generation"]


def test_a_server_that_cannot_release_is_ended_and_replaced(staged: Staged, engine: Engine):
    engine.publish(staged.weights, 1)
    staged.server().kill()

    engine.release()
    engine.publish(staged.weights, 1)

    assert "did not release its memory" in staged.lost()[0]
    assert "/resume_memory_occupation" not in staged.asked()


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
