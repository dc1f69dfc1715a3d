"""Reward models and judges, on a real server in this process."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import tenacity.wait

from configs.errors import UserError
from configs.reward import Http, Judge
from tasks.reward import remote
from tasks.reward.remote import ask
from tests.unit.reward.conftest import Answer

Reply = tuple[int, Any]


class Server:
    """Answers each request with what `reply` makes of its body; keeps the bodies and the last headers."""

    def __init__(self) -> None:
        self.reply: Callable[[dict[str, Any]], Reply] = lambda body: (200, {"scores": [0.5] * len(body["samples"])})
        self.bodies: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.bodies.append(body)
                owner.headers = dict(self.headers)
                status, content = owner.reply(body)
                encoded = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/score"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote, "wait_random_exponential", lambda max: tenacity.wait.wait_none())
    server = Server()
    yield server
    server.close()


def test_a_reward_model_gets_batches_and_its_marks_are_brought_to_the_unit_range(server: Server, answer: Answer):
    server.reply = lambda body: (200, {"scores": [float(sample["response"]) for sample in body["samples"]]})
    part = Http(url=server.url, batch_size=2, scale=(-4.0, 4.0))
    outcomes = ask(part, [answer("7", text, id=text) for text in ("-4", "0", "2", "4", "100")])
    assert [outcome.value for outcome in outcomes] == [0.0, 0.5, 0.75, 1.0, 1.0]
    assert sorted(len(body["samples"]) for body in server.bodies) == [1, 2, 2]
    samples = [sample for body in server.bodies for sample in body["samples"]]
    assert {"id": "2", "question": "", "gold": "7", "response": "2"} in samples


def test_a_request_that_fails_is_made_again(server: Server, answer: Answer):
    replies = iter([(503, "busy"), (429, "slow down"), (200, {"scores": [1.0]})])
    server.reply = lambda body: next(replies)
    assert [outcome.value for outcome in ask(Http(url=server.url), [answer("", "x")])] == [1.0]


def test_after_the_last_attempt_its_samples_are_errors_and_the_others_have_their_marks(server: Server, answer: Answer):
    def reply(body: dict[str, Any]) -> Reply:
        return (500, "down") if body["samples"][0]["response"] == "bad" else (200, {"scores": [1.0]})

    server.reply = reply
    part = Http(url=server.url, batch_size=1, attempts=3)
    outcomes = ask(part, [answer("", text) for text in ("good", "bad", "good")])
    assert [outcome.failure for outcome in outcomes] == [None, "error", None]
    assert "500" in outcomes[1].reason
    assert len(server.bodies) == 2 + 3


def test_a_refused_request_is_not_made_again(server: Server, answer: Answer):
    server.reply = lambda body: (401, "who are you?")
    assert ask(Http(url=server.url), [answer("", "x")])[0].failure == "error"
    assert len(server.bodies) == 1


def test_a_server_that_is_not_there_is_an_error(answer: Answer):
    assert ask(Http(url="http://127.0.0.1:9/score", attempts=1), [answer("", "x")])[0].failure == "error"


def test_a_server_that_comes_back_while_it_may_be_away_gives_all_its_marks(
    server: Server, answer: Answer, monkeypatch: pytest.MonkeyPatch
):
    refused: list[int] = []

    def post(client: httpx.Client, url: str, **named: Any) -> httpx.Response:
        refused.append(1)
        if len(refused) <= 40:
            raise httpx.ConnectError("nobody listens")
        return post_for_real(client, url, **named)

    post_for_real = httpx.Client.post
    monkeypatch.setattr(httpx.Client, "post", post)
    batch = [answer("", text) for text in "abc"]
    outcomes = ask(Http(url=server.url, batch_size=1, concurrency=1, attempts=2), batch, away=60.0)
    assert [outcome.value for outcome in outcomes] == [0.5] * 3


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_that_speaks_for_a_server_which_is_away_is_asked_again(server: Server, answer: Answer, status: int):
    replies = iter([(status, "away")] * 9 + [(200, {"scores": [1.0]})])
    server.reply = lambda body: next(replies)
    assert ask(Http(url=server.url, attempts=2), [answer("", "x")], away=60.0)[0].value == 1.0


def test_a_server_that_stays_away_costs_that_time_once_and_its_samples_are_errors(
    server: Server, answer: Answer, monkeypatch: pytest.MonkeyPatch
):
    now = itertools.count()  # A second passes with each look at the clock.
    monkeypatch.setattr(remote.time, "monotonic", lambda: float(next(now)))
    server.reply = lambda body: (503, "away")
    outcomes = ask(Http(url=server.url, batch_size=1, concurrency=1, attempts=2), [answer("", "x")] * 20, away=30.0)
    assert {outcome.failure for outcome in outcomes} == {"error"}
    assert 20 * 2 <= len(server.bodies) <= 20 * 2 + 30


def test_a_server_that_answers_with_an_error_is_not_away(server: Server, answer: Answer):
    server.reply = lambda body: (500, "I can't read this one")
    assert ask(Http(url=server.url, attempts=3), [answer("", "x")], away=60.0)[0].failure == "error"
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "not JSON",
        {},
        {"scores": None},
        {"scores": []},
        {"scores": [1, 1]},
        {"scores": ["x"]},
        '{"scores": [NaN]}',
    ],
)
def test_a_reply_without_a_mark_for_each_sample_is_an_error(content: Any, server: Server, answer: Answer):
    server.reply = lambda body: (200, content)
    [outcome] = ask(Http(url=server.url), [answer("", "x")])
    assert (outcome.value, outcome.failure) == (None, "error")


def says(text: str) -> Reply:
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}]}


def test_a_judge_is_asked_about_each_response_without_its_thinking(server: Server, answer: Answer):
    server.reply = lambda body: says("It is.\n**Score: 1**" if "[5]" in body["messages"][0]["content"] else "Score: 0.")
    part = Http(url=server.url, judge=Judge(model="big", prompt="{gold}? [{response}]"))
    outcomes = ask(part, [answer("5", "<think>6</think>5"), answer("5", "6 {gold}")])
    assert [outcome.value for outcome in outcomes] == [1.0, 0.0]
    assert sorted(body["messages"][0]["content"] for body in server.bodies) == ["5? [5]", "5? [6 {gold}]"]
    assert {body["model"] for body in server.bodies} == {"big"}


@pytest.mark.parametrize("reply", ["", "Score: high", "I'd say 1", "The response says `Score: 1`, but I can't tell"])
def test_a_judge_that_gives_no_mark_is_an_error(reply: str, server: Server, answer: Answer):
    server.reply = lambda body: says(reply)
    assert ask(Http(url=server.url, judge=Judge(model="big")), [answer("5", "5")])[0].failure == "error"


def test_the_api_key_comes_from_the_environment_and_stays_out_of_reports(
    server: Server, answer: Answer, monkeypatch: pytest.MonkeyPatch
):
    part = Http(url=server.url, api_key_variable="JUDGE_KEY")
    with pytest.raises(UserError, match="JUDGE_KEY"):
        ask(part, [answer("", "x")])
    monkeypatch.setenv("JUDGE_KEY", "secret")
    server.reply = lambda body: (403, "no")
    [outcome] = ask(part, [answer("", "x")])
    assert server.headers["Authorization"] == "Bearer secret"
    assert "secret" not in outcome.reason and "secret" not in part.model_dump_json()
