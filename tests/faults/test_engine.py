"""An engine whose server dies, hangs or lies is replaced, and the new one serves only the version that it reports."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from configs import schema
from configs.timeouts import Timeouts
from tasks.engine.engine import Engine
from tasks.run.events import read_events
from tasks.server.client import TORN, EngineClient, EngineUnavailable, Response
from tests.faults.harness import FAKE
from trainer.model.tiny_policy import build


@dataclass
class Staged:
    """An engine with a fake server, three versions of weights, and what the server was asked."""

    engine: Engine
    weights: Path
    tricks: Path
    logs: Path

    def client(self, version: int) -> EngineClient:
        return EngineClient(self.engine.publish(self.weights / str(version), version), attempts=1)

    def sample(self, version: int) -> list[Response]:
        with self.client(version) as client:
            return client.generate([[4, 11, 12, 13]], [1], 1.0, 8)

    def asked(self) -> list[tuple[int, int, str]]:
        """Process, version that it reports, and path of each request, in order."""
        lines = (self.tricks / "requests.log").read_text().splitlines()
        return [(int(pid), int(version), path) for pid, version, path in map(str.split, lines)]

    def server(self) -> psutil.Process:
        return psutil.Process(self.asked()[-1][0])

    def events(self) -> list[str]:
        return [
            f"{event['event']}: {event.get('why', event.get('version'))}"
            for event in read_events(self.logs / "events.jsonl")
        ]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders 0, 1 and `same`, which holds the weights of 1 again."""
    from safetensors.numpy import load_file, save_file

    folder = tmp_path_factory.mktemp("weights")
    for name, factor in (("0", 1.0), ("1", 2.0), ("2", 2.0)):
        build(folder / name)
        file = folder / name / "model.safetensors"
        save_file({key: value * factor for key, value in load_file(file).items()}, file, {"format": "pt"})
    return folder


@pytest.fixture
def staged(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Staged]:
    tricks = tmp_path / "tricks"
    tricks.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}:{Path(__file__).parents[2]}")
    monkeypatch.setenv("FAKE_SGLANG", str(tricks))
    timeouts = Timeouts(hang=4, request=30)
    engine = Engine(0, schema.Recipe(name="r", timeouts=timeouts), tmp_path / "logs", "cpu")
    engine.start(weights / "0", 0)
    yield Staged(engine, weights, tricks, tmp_path / "logs")
    engine.stop()


def test_an_update_that_says_success_and_changes_nothing_is_found_out_and_the_engine_replaced(staged: Staged) -> None:
    expected = staged.sample(1)
    staged.sample(0)
    (staged.tricks / "lie").touch()

    assert staged.sample(1) == expected

    started, lost, again = staged.events()
    assert started == "engine started: 0"
    assert "said that it loaded weights 1" in lost and "its tensors are those of" in lost
    assert again == "engine started: 1"


def test_an_update_to_the_same_weights_is_no_lie(staged: Staged) -> None:
    first, second = staged.sample(1), staged.sample(2)  # The update between them was skipped, say.

    assert [response.ids for response in first] == [response.ids for response in second]
    assert {response.weights_version for response in second} == {2}
    assert staged.events() == ["engine started: 0"]


def test_a_replacement_is_asked_nothing_before_it_reports_the_right_version(staged: Staged) -> None:
    staged.sample(1)
    old = staged.server()
    old.kill()

    staged.sample(1)

    new = [(version, path) for pid, version, path in staged.asked() if pid != old.pid]
    assert new[0] == (1, "/model_info")
    assert {version for version, path in new if path == "/generate"} == {1}
    assert [path for _, path in new if path != "/health_generate"] == ["/model_info", "/weights_checker", "/generate"]


def test_after_a_resume_the_first_sample_comes_from_the_weights_of_the_run_and_not_from_the_base(
    staged: Staged,
) -> None:
    expected = staged.sample(1)
    staged.engine.stop()
    before = len(staged.asked())

    staged.engine.start(staged.weights / "0", -1)  # The base, as a new driver starts its engines.

    assert staged.sample(1) == expected
    assert {version for _, version, path in staged.asked()[before:] if path == "/generate"} == {1}


def test_a_server_whose_scheduler_is_killed_is_replaced(staged: Staged) -> None:
    expected = staged.sample(0)
    server = staged.server()
    (scheduler,) = [child for child in server.children() if child.cmdline()[0].startswith("sglang::scheduler")]
    scheduler.kill()

    wait_for(lambda: not server.is_running())

    assert staged.sample(0) == expected
    assert any("no sign of life for" in event for event in staged.events())


def test_a_server_that_hangs_is_ended_and_who_waits_for_it_gets_an_error(staged: Staged) -> None:
    expected = staged.sample(0)
    client, server = staged.client(0), staged.server()
    failures: list[Exception] = []

    def wait() -> None:
        try:
            client.generate([[4, 11]], [1], 1.0, 8)
        except EngineUnavailable as error:
            failures.append(error)

    server.send_signal(signal.SIGSTOP)
    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(25)  # Less than request_timeout: the watch ended it, not the limit of the request.

    assert len(failures) == 1
    wait_for(lambda: not server.is_running())
    assert staged.sample(0) == expected
    assert any("no sign of life for" in event for event in staged.events())


def test_an_engine_in_which_a_change_of_weights_was_cut_off_is_replaced_and_generates_nothing(staged: Staged) -> None:
    expected = staged.sample(1)
    torn = staged.server().pid
    with staged.client(1) as client:
        client.command("/update_weights_from_disk", model_path=str(staged.weights / "0"), weight_version=str(TORN))
    asked = len(staged.asked())

    assert staged.sample(1) == expected

    assert not any(pid == torn and path == "/generate" for pid, _, path in staged.asked()[asked:])
    assert any("a change of its weights in memory was cut off" in event for event in staged.events())


def test_a_server_that_lives_is_left_alone(staged: Staged) -> None:
    staged.sample(0)
    signs = len(staged.asked())

    wait_for(lambda: sum(path == "/health_generate" for _, _, path in staged.asked()[signs:]) >= 3)

    assert staged.events() == ["engine started: 0"]


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline, "did not happen within 30 s"
        time.sleep(0.05)
