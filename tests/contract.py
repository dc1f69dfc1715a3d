"""What the real SGLang server does, and the fake with it: the same tests run on both.

`tests/integration/test_engine.py` runs them on the real one, `tests/unit/server/test_fake.py` on the fake. Both give a
fixture `server`.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tasks.records.usable import flaw
from tasks.server.client import Endpoint, EngineClient, EngineRefused, Response
from trainer.model.tiny_policy import VOCABULARY

CONTEXT = 256
"""Tokens of prompt and response together that the recipe of the server allows."""
PROMPT = [4, 11, 12, 13, 5]
SEEDS = list(range(8))


@dataclass(frozen=True)
class Server:
    """A running server with sound weights, and a way to give it others.

    Attributes:
        endpoint: where it is reached.
        broken: a folder of weights that are no numbers.
        sound: the folder of those that it has, with their version.
    """

    endpoint: Endpoint
    sound: tuple[Path, int]
    broken: Path

    def client(self) -> EngineClient:
        return EngineClient(self.endpoint)

    def post(self, path: str, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.endpoint.api_key}"}
        return httpx.post(f"{self.endpoint.url}{path}", headers=headers, json=body, timeout=60)

    def generate(self, ids: Sequence[str], tokens: int) -> httpx.Response:
        params = [{"temperature": 1.0, "max_new_tokens": tokens, "sampling_seed": seed} for seed in range(len(ids))]
        prompts = [PROMPT] * len(ids)
        return self.post("/generate", input_ids=prompts, sampling_params=params, rid=list(ids), return_logprob=True)


def break_weights(folder: Path) -> None:
    """Make a model's weights none."""
    (file,) = folder.glob("*.safetensors")
    weights = {name: np.full_like(tensor, np.nan) for name, tensor in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})


@contextmanager
def long_ones(server: Server, ids: Sequence[str]) -> Iterator[list[httpx.Response]]:
    """Have a server work on long responses, which are given when they end; then have them ended."""
    working, answers = threading.Thread(), list[httpx.Response]()
    while not working.is_alive():  # again if a probe came first, so that the long ones were refused
        answers.clear()
        working = threading.Thread(target=lambda: answers.append(server.generate(ids, 200)))
        working.start()
        time.sleep(0.2)
        # It works on them from the moment on at which it refuses them.
        while working.is_alive() and server.generate(ids, 1).status_code == 200:
            pass
    try:
        yield answers
    finally:
        for name in ids:
            server.post("/abort_request", rid=name)
        working.join()


def test_u34_an_id_that_is_being_worked_on_is_refused_and_taken_again_when_it_is_done(server: Server) -> None:
    ids = [f"again-{seed}" for seed in SEEDS]
    with long_ones(server, ids) as answers:
        refused = server.generate(ids, 1)
        assert not answers
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("Duplicate request ID detected: again-")
    assert server.generate(ids, 1).status_code == 200


def test_u34_an_id_twice_in_one_request_is_refused(server: Server) -> None:
    refused = server.generate(["twice", "once", "twice"], 1)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "Duplicate request IDs detected within the request: ['twice']"


def test_what_is_aborted_answers_with_its_tokens_so_far_and_no_stop(server: Server) -> None:
    ids = [f"aborted-{seed}" for seed in SEEDS]
    with long_ones(server, ids) as answers:
        pass
    samples = answers[0].json()
    assert answers[0].status_code == 200
    aborted = [sample for sample in samples if sample["meta_info"]["finish_reason"]["type"] == "abort"]
    assert aborted
    for sample in aborted:
        tokens = sample["meta_info"].get("output_token_logprobs") or []
        assert len(tokens) == sample["meta_info"]["completion_tokens"] < 200
        assert sample["output_ids"] == [token for _, token, _ in tokens]


def test_an_abort_of_what_is_not_there_is_ignored(server: Server) -> None:
    assert server.post("/abort_request", rid="nobody").status_code == 200


def test_u34_a_response_that_is_slow_comes_at_last_and_is_the_same(server: Server) -> None:
    def generate(client: EngineClient) -> list[Response]:
        with client:
            return client.generate([PROMPT] * 2, SEEDS[:2], 1.0, 100)

    hurried = EngineClient(replace(server.endpoint, timeout=0.2), attempts=9)
    assert generate(hurried) == generate(server.client())
    assert hurried.retries


@pytest.mark.parametrize("limit", [1, 2, 32, 200])
def test_u14_a_prompt_that_just_fits_gets_its_whole_limit(server: Server, limit: int) -> None:
    prompt = (PROMPT * CONTEXT)[: CONTEXT - limit]
    with server.client() as client:
        responses = client.generate([prompt] * 32, range(32), 1.0, limit)
    cut = [response for response in responses if response.finish_reason == "length"]
    assert cut
    assert {len(response.ids) for response in cut} == {limit}
    assert all(flaw(r.ids, r.logprobs, r.finish_reason, range(len(VOCABULARY)), limit) is None for r in responses)


@pytest.mark.parametrize(
    ("prompt", "limit", "said"),
    [
        (CONTEXT + 6, 1, "The input (262 tokens) is longer than the model's context length (262 tokens)."),
        (CONTEXT, 1, "Input length (256 tokens) exceeds the maximum allowed length (256 tokens)."),
        (CONTEXT - 6, 13, "Requested token count exceeds the model's maximum context length of 262 tokens."),
    ],
)
def test_u14_what_does_not_fit_is_refused(server: Server, prompt: int, limit: int, said: str) -> None:
    with server.client() as client, pytest.raises(EngineRefused) as refused:
        client.generate([(PROMPT * CONTEXT)[:prompt]], [1], 1.0, limit)
    assert "400" in str(refused.value) and said in str(refused.value)


def test_a_stranger_is_turned_away(server: Server) -> None:
    assert httpx.post(f"{server.endpoint.url}/generate", json={"input_ids": PROMPT}).status_code == 401


def test_u06_a_response_that_ends_at_a_text_is_the_beginning_of_the_one_that_would_have_been(server: Server) -> None:
    def generate(*stop: str) -> list[Response]:
        with EngineClient(server.endpoint, stop=stop) as client:
            return client.generate([PROMPT] * 16, range(16), 1.0, 32)

    for ended, whole in zip(generate("7", "zq"), generate(), strict=True):
        end = whole.ids.index(VOCABULARY["7"]) + 1 if VOCABULARY["7"] in whole.ids else len(whole.ids)
        assert (ended.ids, ended.logprobs) == (whole.ids[:end], whole.logprobs[:end])
        assert ended.at_text == (ended.ids[-1] == VOCABULARY["7"])
        assert ended.finish_reason == ("stop" if ended.at_text else whole.finish_reason)
        assert not whole.at_text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_u13_weights_that_are_no_numbers_give_log_probs_that_are_none(server: Server, temperature: float) -> None:
    folder, version = server.sound
    with server.client() as client:
        client.update_weights(server.broken, version + 100)
        try:
            (response,) = client.generate([PROMPT], [1], temperature, 4)
        finally:
            client.update_weights(folder, version)
        (sound,) = client.generate([PROMPT], [1], temperature, 4)
    assert response.flaw is None  # It looks as any other, but for its log-probs.
    assert set(response.logprobs) == {None}
    assert flaw(response.ids, response.logprobs, response.finish_reason, range(len(VOCABULARY)), 4)
    assert all(math.isfinite(logprob) for logprob in sound.logprobs)
