"""New weights for real SGLang servers on a CPU: by every way the same, and what an update that is cut off leaves."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from configs import schema
from tasks.engine.engine import Engine
from tasks.server.client import TORN, Endpoint, EngineClient, Response, WeightsNotUpdated
from trainer.model.tiny_policy import VOCABULARY

pytestmark = pytest.mark.slow

PROMPTS = [[4, 11, 12, 13, 5], [4, 20, 21], [7]]
WAYS = ["broadcast", "tensors"]
BUCKET = 1_000_000  # Bytes: several buckets.


class Engines:
    """Two running engines, and what their weights are."""

    def __init__(self, folders: dict[int, Path], log_dir: Path) -> None:
        self.folders = folders
        settings, model = schema.Engine(threads=1), schema.Model(context_length=256)
        recipe = schema.Recipe(name="r", engine=settings, model=model)
        self.engines = [Engine(index, recipe, log_dir, "cpu") for index in (0, 1)]

    def by_disk(self, version: int) -> list[Endpoint]:
        """Bring them to a version by disk."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda engine: engine.publish(self.folders[version], version), self.engines))

    def state(self, index: int = 0) -> tuple[int, str, list[Response]]:
        """Version, checksum of the tensors, and greedy responses of one."""
        endpoint, _ = self.engines[index].reports() or pytest.fail("the engine does not answer")
        with EngineClient(endpoint) as client:
            responses = client.generate(PROMPTS, [0] * len(PROMPTS), 0.0, 24)
            return client.weights_version(), client.weights_checksum(), responses


@pytest.fixture(scope="module")
def engines(tiny_weights: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    made = Engines(tiny_weights, tmp_path_factory.mktemp("engines"))
    made.by_disk(0)
    yield made
    for engine in made.engines:
        engine.stop()


@pytest.fixture(scope="module")
def by_disk(engines: Engines) -> dict[int, tuple[int, str, list[Response]]]:
    """What an engine is at each version, by disk."""
    states = {}
    for version in (1, 0):
        engines.by_disk(version)
        states[version] = engines.state()
    assert states[0] != states[1]
    return states


@pytest.fixture(scope="module")
def exports(tiny_weights: dict[int, Path]) -> dict[int, Any]:
    """The versions in a learner's memory."""
    from trainer.model import policy
    from trainer.state.export import Export

    return {
        version: Export(policy.load(folder, temperature=1.0, dtype="float32"), None)
        for version, folder in tiny_weights.items()
    }


@pytest.fixture
def send(exports: dict[int, Any]) -> Iterator[Callable[..., Any]]:
    """Send a version from memory, by a new sender unless one is given; return the sender."""
    from tasks.weights.from_memory import Sender

    senders: list[Sender] = []

    def send(via: str, version: int, endpoints: list[Endpoint], sender: Sender | None = None) -> Sender:
        recipe = schema.Recipe(name="r", weight_sync={"via": via, "bucket_bytes": BUCKET})  # pyright: ignore[reportArgumentType]
        sender = sender or Sender(recipe)
        senders.append(sender)
        sizes = [tensor.nbytes for _, tensor in exports[version].described()]
        sender.send(exports[version].tensors(), sizes, version, endpoints)
        return sender

    yield send
    for sender in senders:
        sender.close()


@pytest.mark.parametrize("via", WAYS)
def test_from_memory_engines_have_the_weights_that_they_have_by_disk(
    engines: Engines, by_disk: dict[int, Any], send: Callable[..., Any], via: str
):
    endpoints = engines.by_disk(0)

    sender = send(via, 1, endpoints)
    assert [engines.state(index) for index in (0, 1)] == [by_disk[1]] * 2

    send(via, 0, endpoints, sender)
    assert [engines.state(index) for index in (0, 1)] == [by_disk[0]] * 2


def test_a_learner_that_was_replaced_meets_the_engines_again(
    engines: Engines, by_disk: dict[int, Any], send: Callable[..., Any]
):
    endpoints = engines.by_disk(0)
    lost = send("broadcast", 1, endpoints)
    lost.close()  # It tells the engines nothing.

    send("broadcast", 0, endpoints)

    assert [engines.state(index) for index in (0, 1)] == [by_disk[0]] * 2


@pytest.mark.parametrize("via", WAYS)
def test_a_request_that_runs_while_the_weights_change_is_finished_with_the_new_ones(
    engines: Engines, send: Callable[..., Any], via: str
):
    endpoints = engines.by_disk(0)
    sampling = {"max_new_tokens": 200, "temperature": 1.0, "sampling_seed": 1, "ignore_eos": True}
    body = {"input_ids": PROMPTS[0], "sampling_params": sampling, "return_logprob": True, "stream": True}
    key = {"Authorization": f"Bearer {endpoints[0].api_key}"}

    with httpx.stream("POST", f"{endpoints[0].url}/generate", json=body, headers=key, timeout=120) as answer:
        lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line)
        next(lines)  # It runs.
        send(via, 1, endpoints)
        *_, last = [json.loads(line) for line in lines if line != "[DONE]"]

    meta = last["meta_info"]
    assert meta["finish_reason"]["type"] == "length"
    assert meta["completion_tokens"] == len(meta["output_token_logprobs"]) == 200
    assert all(0 <= token < len(VOCABULARY) for _, token, _ in meta["output_token_logprobs"])
    assert [(span["version"], span["end"]) for span in meta["weight_versions"]][-1] == ("1", 200)
    assert meta["weight_versions"][0]["version"] == "0"


CHANGES = [
    "/pause_generation",
    "/continue_generation",
    "/update_weight_version",
    "/begin_weight_update",
    "/end_weight_update",
    "/init_weights_update_group",
    "/destroy_weights_update_group",
    "/update_weights_from_distributed",
    "/update_weights_from_tensor",
    "/update_weights_from_disk",
    "/weights_checker",
]


@pytest.mark.parametrize("path", CHANGES)
def test_what_changes_weights_needs_the_key(engines: Engines, path: str):
    endpoint = engines.by_disk(0)[0]

    for headers in ({}, {"Authorization": "Bearer guessed"}):
        assert httpx.post(f"{endpoint.url}{path}", json={}, headers=headers).status_code == 401


@pytest.mark.parametrize("via", WAYS)
def test_an_engine_that_is_lost_in_an_update_and_those_that_were_updated_with_it_are_replaced(
    engines: Engines, by_disk: dict[int, Any], send: Callable[..., Any], via: str
):
    endpoints = engines.by_disk(0)
    sender = send(via, 1, endpoints)
    lost = schedulers(engines.engines[1])
    for process in lost:
        process.kill()
    psutil.wait_procs(lost, timeout=10)

    with pytest.raises(WeightsNotUpdated):
        send(via, 0, endpoints, sender)
    _, reported = engines.engines[0].reports() or pytest.fail("the engine does not answer")
    assert reported in (TORN, 1)

    engines.by_disk(1)
    assert [engines.state(index) for index in (0, 1)] == [by_disk[1]] * 2
    send(via, 0, engines.by_disk(1), sender)
    assert [engines.state(index) for index in (0, 1)] == [by_disk[0]] * 2


def schedulers(engine: Engine) -> list[psutil.Process]:
    """The processes of an engine that hold its weights."""
    server = engine._guard
    assert server
    children = psutil.Process(server.pid).children(recursive=True)
    return [
        process for process in children if "scheduler" in process.name() or "scheduler" in " ".join(process.cmdline())
    ]
