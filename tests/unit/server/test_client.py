"""The engine's client against a server that fails in all the ways seen in the field."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tasks.server import client as client_module
from tasks.server.client import (
    ATTEMPTS,
    Endpoint,
    EngineClient,
    EngineRefused,
    EngineSlow,
    EngineUnavailable,
    WeightsNotUpdated,
)
from tests.families import FAMILIES, build
from trainer.model.tokens import tokens_of

Answer = tuple[int, Any]  # status and JSON body; status 0: no answer until the client gives up
GENERATE, UPDATE, INFO = "/generate", "/update_weights_from_disk", "/model_info"
ABORT, HEALTH = "/abort_request", "/health_generate"


class FakeServer:
    """Answers each path from a list, the last one for ever, and remembers what it was asked."""

    url = ""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.always: dict[str, list[Answer]] = {ABORT: [(200, None)], HEALTH: [(200, None)]}
        self.requests: list[tuple[str, Any]] = []
        self.keys: set[str | None] = set()

    def answer(self, path: str) -> Answer:
        answers = (self.always | self.answers)[path]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def asked(self, path: str) -> int:
        return len(self.bodies(path))

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.requests if asked == path]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake, over = FakeServer(), Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fake.requests.append((self.path, json.loads(body) if body else None))
            fake.keys.add(self.headers["Authorization"])
            status, answer = fake.answer(self.path)
            if status == 0:
                over.wait()
                return
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{http.server_port}"
    thread = Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    yield fake
    over.set()
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def client(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> EngineClient:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(client_module, "SIGN_OF_LIFE", 2.0)
    return EngineClient(Endpoint(server.url, "secret", timeout=0.3))


def sample(ids: list[int], logprobs: list[float], reason: str = "stop", version: int = 3) -> dict[str, Any]:
    return {
        "output_ids": ids,
        "meta_info": {
            "finish_reason": {"type": reason},
            "weight_version": str(version),
            "completion_tokens": len(ids),
            "output_token_logprobs": [[lp, id_, None] for lp, id_ in zip(logprobs, ids, strict=False)],
        },
    }


def test_all_prompts_go_in_one_request_with_a_seed_each(server: FakeServer, client: EngineClient):
    server.answers = {GENERATE: [(200, [sample([1, 2], [-0.5, -0.7]), sample([4], [-0.1], "length")])]}
    responses = client.generate([[9, 8], [7]], seeds=[11, 12], temperature=0.7, max_tokens=5)

    ((_, body),) = server.requests
    assert body["input_ids"] == [[9, 8], [7]]
    assert [params["sampling_seed"] for params in body["sampling_params"]] == [11, 12]
    assert all(params["temperature"] == 0.7 and params["max_new_tokens"] == 5 for params in body["sampling_params"])
    assert [response.ids for response in responses] == [[1, 2], [4]]
    assert [response.logprobs for response in responses] == [[-0.5, -0.7], [-0.1]]
    assert [response.finish_reason for response in responses] == ["stop", "length"]
    assert {response.weights_version for response in responses} == {3}


def test_u06_the_texts_that_end_a_response_go_with_each_request(server: FakeServer, client: EngineClient):
    ended = sample([1, 2], [-0.5, -0.7])
    ended["meta_info"]["finish_reason"] |= {"matched": "\nQ:"}
    server.answers = {GENERATE: [(200, [ended, sample([4], [-0.1])])]}
    with EngineClient(Endpoint(server.url, "secret"), stop=("\nQ:", "\n\n")) as stopping:
        responses = stopping.generate([[9], [9]], [1, 2], 1.0, 5)
    client.generate([[9], [9]], [1, 2], 1.0, 5)

    first, second = server.bodies(GENERATE)
    assert [params["stop"] for params in first["sampling_params"]] == [["\nQ:", "\n\n"]] * 2
    assert not any("stop" in params for params in second["sampling_params"])
    assert [(response.at_text, response.finish_reason) for response in responses] == [(True, "stop"), (False, "stop")]


def test_the_key_goes_with_every_request_and_not_into_reprs(server: FakeServer, client: EngineClient):
    server.answers = {INFO: [(200, {"weight_version": "3"})]}
    client.weights_version()
    assert server.keys == {"Bearer secret"}
    assert "secret" not in repr(Endpoint("http://x", "secret"))


def test_ids_and_log_probs_of_unequal_length_are_a_flaw_that_names_both(server: FakeServer, client: EngineClient):
    server.answers = {GENERATE: [(200, [sample([1, 2, 3], [-0.5, -0.7]), sample([4], [-0.1])])]}
    torn, whole = client.generate([[9], [9]], [1, 2], 1.0, 5)
    assert torn.flaw == "3 response tokens came with 2 log-probs"
    assert (whole.ids, whole.flaw) == ([4], None)


def test_a_response_of_other_tokens_than_its_log_probs_is_a_flaw(server: FakeServer, client: EngineClient):
    server.answers = {GENERATE: [(200, [sample([1, 2], [-0.5, -0.7]) | {"output_ids": [1, 3]}])]}
    (response,) = client.generate([[9]], [1], 1.0, 5)
    assert response.flaw == "its log-probs are of other tokens than its ids"


@pytest.mark.parametrize(
    "meta",
    [
        {"finish_reason": None},
        {"weight_version": None},
        {"weight_version": "default"},
        {"output_token_logprobs": [None]},
        {"output_token_logprobs": [[-0.5]]},
    ],
    ids=str,
)
def test_a_response_that_can_not_be_read_is_a_flaw_of_that_one_alone(
    server: FakeServer, client: EngineClient, meta: dict[str, Any]
):
    strange, sound = sample([1], [-0.5]), sample([1], [-0.5])
    strange["meta_info"] |= meta
    server.answers = {GENERATE: [(200, [strange, sound])]}

    unread, read = client.generate([[9], [9]], [1, 2], 1.0, 5)

    assert unread.flaw and unread.flaw.startswith("it can't be read: ")
    assert read.flaw is None


def test_u13_a_stop_at_nan_is_no_stop(server: FakeServer, client: EngineClient):
    stopped = sample([1, 2], [-0.5, -0.7])
    stopped["meta_info"]["finish_reason"] |= {"matched": "NaN happened"}
    server.answers = {GENERATE: [(200, [stopped])]}
    (response,) = client.generate([[9]], [1], 1.0, 5)
    assert response.flaw == "the engine says 'NaN happened'"


def test_a_missing_response_is_an_error_that_names_both_counts(server: FakeServer, client: EngineClient):
    server.answers = {GENERATE: [(200, [sample([1], [-0.5])])]}
    with pytest.raises(EngineRefused, match="1 responses to 2 prompts"):
        client.generate([[9], [9]], [1, 2], 1.0, 5)


def test_an_aborted_sample_is_told_from_a_finished_one(server: FakeServer, client: EngineClient):
    never_begun = {"meta_info": {"finish_reason": {"type": "abort"}, "completion_tokens": 0, "weight_version": "3"}}
    server.answers = {GENERATE: [(200, [sample([1], [-0.5], "abort"), never_begun])]}

    responses = client.generate([[9], [9]], [1, 2], 1.0, [5, 6], ids=["a", "b"])

    assert [(response.ids, response.finish_reason) for response in responses] == [([1], "abort"), ([], "abort")]
    ((_, body),) = server.requests
    assert body["rid"] == ["a", "b"]
    assert [params["max_new_tokens"] for params in body["sampling_params"]] == [5, 6]


@pytest.mark.parametrize("failure", [(0, None), (503, {"error": "busy"})], ids=["timeout", "503"])
def test_one_failure_is_retried_and_the_sample_appears_once(server: FakeServer, client: EngineClient, failure: Answer):
    server.answers = {GENERATE: [failure, (200, [sample([1], [-0.5])])]}
    assert [response.ids for response in client.generate([[9]], [1], 1.0, 5)] == [[1]]
    assert client.retries == 1


@pytest.mark.parametrize(
    "failure", [(0, None), (503, {"error": "busy"}), (200, b'[{"meta_in')], ids=["timeout", "503", "cut off"]
)
def test_u34_each_attempt_has_new_ids_and_the_old_ones_are_aborted(
    server: FakeServer, client: EngineClient, failure: Answer
):
    server.answers = {GENERATE: [failure, failure, (200, [sample([1], [-0.5]), sample([2], [-0.5])])]}

    client.generate([[9], [9]], [1, 2], 1.0, 5, ids=["a", "b"])

    attempts = [body["rid"] for body in server.bodies(GENERATE)]
    assert attempts == [["a", "b"], ["a-2", "b-2"], ["a-3", "b-3"]]
    assert [body["rid"] for body in server.bodies(ABORT)] == ["a", "b", "a-2", "b-2"]
    bodies = [{key: value for key, value in body.items() if key != "rid"} for body in server.bodies(GENERATE)]
    assert bodies[0] == bodies[1] == bodies[2]


def test_u34_ids_that_nobody_named_differ_too(server: FakeServer, client: EngineClient):
    server.answers = {GENERATE: [(503, {}), (200, [sample([1], [-0.5])])]}
    client.generate([[9]], [1], 1.0, 5)
    client.generate([[9]], [1], 1.0, 5)
    ids = [body["rid"][0] for body in server.bodies(GENERATE)]
    assert len(set(ids)) == len(ids) == 3


def test_u34_an_abort_is_of_the_attempt_that_runs(server: FakeServer, client: EngineClient):
    def abort_again() -> None:
        while server.asked(GENERATE) < 2:
            time.sleep(0.01)
        client.abort("a")

    server.answers = {GENERATE: [(503, {}), (0, None), (200, [sample([1], [-0.5], "abort")])]}
    aborting = Thread(target=abort_again)
    aborting.start()
    client.generate([[9]], [1], 1.0, 5, ids=["a"])
    aborting.join()
    client.abort("a")  # It is over: nothing is asked.

    assert [body["rid"] for body in server.bodies(ABORT)] == ["a", "a-2", "a-2"]


def test_u34_a_slow_response_of_an_engine_that_lives_is_told_from_one_that_is_lost(
    server: FakeServer, client: EngineClient
):
    server.answers = {GENERATE: [(0, None)]}
    with (
        EngineClient(Endpoint(server.url, "secret", timeout=2.0), attempts=2) as patient,
        pytest.raises(EngineSlow, match="ReadTimeout"),
    ):
        patient.generate([[9]], [1], 1.0, 5)
    assert server.asked(HEALTH) == server.asked(GENERATE) == 2


@pytest.mark.parametrize("health", [(0, None), (503, {})], ids=["silent", "503"])
def test_u34_an_engine_that_does_not_answer_its_health_check_is_lost(
    server: FakeServer, client: EngineClient, health: Answer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client_module, "SIGN_OF_LIFE", 0.3)
    server.answers = {GENERATE: [(0, None)], HEALTH: [health]}
    with pytest.raises(EngineUnavailable, match="nor does it say that it lives") as lost:
        client.generate([[9]], [1], 1.0, 5)
    assert not isinstance(lost.value, EngineSlow)


def test_u34_a_slow_response_gets_more_time_at_each_attempt(client: EngineClient, monkeypatch: pytest.MonkeyPatch):
    given: list[float | None] = []

    def send(method: str, path: str, body: Any, timeout: float | None = None) -> httpx.Response:
        if path == GENERATE:
            given.append(timeout)
            raise EngineSlow("no answer")
        return httpx.Response(200)

    monkeypatch.setattr(client, "_send", send)
    with pytest.raises(EngineSlow):
        client.generate([[9]], [1], 1.0, 5)
    assert given == pytest.approx([0.3, 0.6, 1.2, 2.4])


def test_a_permanent_server_error_ends_in_a_named_error_after_bounded_retries(server: FakeServer, client: EngineClient):
    server.answers = {GENERATE: [(503, {"error": "busy"})]}
    with pytest.raises(EngineUnavailable, match=r"503.*busy"):
        client.generate([[9]], [1], 1.0, 5)
    assert server.asked(GENERATE) == ATTEMPTS


def test_a_server_that_never_answers_ends_in_a_named_error(server: FakeServer, client: EngineClient):
    server.answers = {UPDATE: [(0, None)]}
    with pytest.raises(EngineUnavailable, match="ReadTimeout"):
        client.update_weights(Path("/weights/5"), 5)
    assert server.asked(UPDATE) == ATTEMPTS


def test_a_closed_port_ends_in_a_named_error(client: EngineClient, server: FakeServer):
    gone = EngineClient(Endpoint("http://127.0.0.1:9", "secret", timeout=0.3))
    with pytest.raises(EngineUnavailable, match="ConnectError"):
        gone.weights_version()


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_not_retried(server: FakeServer, client: EngineClient, status: int):
    server.answers = {GENERATE: [(status, {"error": {"message": "too long"}})]}
    with pytest.raises(EngineRefused, match=f"{status}.*too long"):
        client.generate([[9]], [1], 1.0, 5)
    assert server.asked(GENERATE) == 1


def test_an_update_names_the_folder_and_the_version(server: FakeServer, client: EngineClient):
    server.answers = {UPDATE: [(200, {"success": True})], INFO: [(200, {"weight_version": "5"})]}
    client.update_weights(Path("/weights/5"), 5)
    path, body = server.requests[0]
    assert (path, body["model_path"], body["weight_version"]) == (UPDATE, "/weights/5", "5")


@pytest.mark.parametrize("status", [200, 400])
def test_an_update_whose_body_says_failure_is_an_error(server: FakeServer, client: EngineClient, status: int):
    server.answers = {UPDATE: [(status, {"success": False, "message": "no such tensor"})]}
    with pytest.raises(WeightsNotUpdated, match=r"weights 5 from /weights/5.*no such tensor"):
        client.update_weights(Path("/weights/5"), 5)


def test_an_update_after_which_the_old_version_is_reported_is_an_error(server: FakeServer, client: EngineClient):
    server.answers = {UPDATE: [(200, {"success": True})], INFO: [(200, {"weight_version": "4"})]}
    with pytest.raises(WeightsNotUpdated, match="reports version 4"):
        client.update_weights(Path("/weights/5"), 5)


def sampling_settings(server: FakeServer, client: EngineClient, temperature: float = 1.0) -> dict[str, Any]:
    server.answers[GENERATE] = [(200, [sample([5], [-0.1])])]
    client.generate([[1]], [7], temperature, 4)
    return server.requests[-1][1]["sampling_params"][0]


@pytest.mark.parametrize("family", FAMILIES)
def test_u11_each_request_names_all_tokens_that_end_a_response(family: str, server: FakeServer, tmp_path: Path):
    ends = tokens_of(build(family, tmp_path, weights=False)).ends

    assert sampling_settings(server, EngineClient(Endpoint(server.url, "key"), ends=ends))["stop_token_ids"] == [*ends]


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_u15_each_request_names_what_leaves_the_distribution_as_it_is(server: FakeServer, temperature: float):
    settings = sampling_settings(server, EngineClient(Endpoint(server.url, "key")), temperature)

    untouched = {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert settings.items() >= {**untouched, "temperature": temperature}.items()
