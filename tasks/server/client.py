"""An HTTP client of one SGLang server: token ids in, token ids and log-probs out."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Self

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from configs.timeouts import Timeouts
from trainer.files import digest

logger = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT = 0.5  # Seconds; the wait before a retry is random, up to this limit, which doubles each time.
LONGEST_WAIT = 10.0  # Seconds.
TORN = -2
"""The version that a server reports while it has no weights or they change. It stays if the change is cut off."""
UNTOUCHED = {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling settings that leave the model's distribution as it is. They are named in each request, since a model's
generation config or a server may have others as defaults, and log-probs of another distribution would be trained on."""
WEIGHTS = "weights"
MEMORY = (WEIGHTS, "kv_cache", "cuda_graph")
"""The GPU memory that a server can give up, by SGLang's names."""


class EngineUnavailable(RuntimeError):
    """An engine did not answer, or only with server errors, after bounded retries."""


class EngineRefused(RuntimeError):
    """An engine answered that a request is wrong, or answered something that can't be used. Not worth a retry."""


class WeightsNotUpdated(RuntimeError):
    """An engine does not serve the weights that it was told to load."""


class WeightsUnchanged(WeightsNotUpdated):
    """An engine said that it loaded weights and did not: what it reports can't be trusted any more."""


@dataclass(frozen=True)
class Endpoint:
    """Where and how a server is reached."""

    url: str
    api_key: str = field(repr=False)
    timeout: float = Timeouts().answer  # seconds until a request must be answered
    connect: float = Timeouts().connect  # seconds until a running server must accept a connection


@dataclass(frozen=True)
class Response:
    """What an engine generated for one sample.

    Attributes:
        ids: Token ids; the last one is an end token if the finish reason is `stop`.
        logprobs: Behaviour log-prob of each token under the sampling temperature, as long as ids.
        finish_reason: `stop` at an end token, `length` at the token limit, `abort` if it was cut off before.
        weights_version: Version that the server reported with the response.
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length", "abort"]
    weights_version: int


class EngineClient:
    """Talks to one server. Safe to use from several threads.

    Timeouts, broken connections and server errors (5xx) are retried a few times; refusals (4xx) never.

    Attributes:
        retries: Number of retries so far.
    """

    def __init__(self, endpoint: Endpoint, attempts: int = ATTEMPTS, ends: Sequence[int] = ()) -> None:
        """Prepare to talk to a server.

        Args:
            endpoint: Where it is reached.
            attempts: Number of tries of a request.
            ends: Token ids that end a response, beside those that the server knows: it has no tokenizer.
        """
        logging.getLogger("httpx").setLevel(logging.WARNING)  # It logs every request.
        self.retries = 0
        self._attempts = attempts
        self._ends = list(ends)
        self._url, self._timeout = endpoint.url, endpoint.timeout
        self._http = httpx.Client(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.api_key}"},
            timeout=httpx.Timeout(endpoint.timeout, connect=endpoint.connect),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,  # an HTTP proxy has no business on the way to an engine
        )

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        temperature: float,
        max_tokens: int | Sequence[int],
        ids: Sequence[str] | None = None,
    ) -> list[Response]:
        """Sample one response a prompt, all in one request: the engine batches them best when they come together.

        Args:
            prompts: Token ids of each prompt, from the model's chat template.
            seeds: The sampling seed of each response.
            temperature: Sampling temperature; 0 is greedy.
            max_tokens: Longest response, in tokens: one limit for all, or one for each.
            ids: New names of the samples, by which they can be aborted.

        Returns:
            One response a prompt, in order. An aborted one has the finish reason `abort` and its tokens so far.

        Raises:
            EngineUnavailable: the server can't be reached or fails.
            EngineRefused: the server says the request is wrong, or its answer does not fit together.
        """
        limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
        answer = self._request(
            "POST",
            "/generate",
            {
                "input_ids": [list(prompt) for prompt in prompts],
                "sampling_params": [
                    {
                        **UNTOUCHED,
                        "temperature": temperature,
                        "max_new_tokens": longest,
                        "sampling_seed": seed,
                        "stop_token_ids": self._ends,
                    }
                    for seed, longest in zip(seeds, limits, strict=True)
                ],
                "rid": list(ids) if ids else None,
                "return_logprob": True,
            },
        )
        if len(answer) != len(prompts):
            raise EngineRefused(f"{self._url} answered {len(answer)} responses to {len(prompts)} prompts")
        return [_response(sample) for sample in answer]

    def abort(self, name: str) -> None:
        """Have the server end a sample that it generates; it then answers with the tokens so far."""
        self._request_once("POST", "/abort_request", {"rid": name})

    def is_alive(self) -> bool:
        """Tell whether the server generates. An idle server generates a test token."""
        try:
            self._request("GET", "/health_generate")
        except (EngineUnavailable, EngineRefused):
            return False
        return True

    def weights_checksum(self) -> str:
        """Return a checksum of the tensors that the server computes with. Equal weights have equal checksums."""
        answer = self._request("POST", "/weights_checker", {"action": "checksum"})
        return digest([rank["per_gpu_checksum"] for rank in answer["ranks"]])

    def tensor_checksums(self) -> dict[str, str]:
        """Return a checksum of each tensor that the server computes with, by the server's name; of all its ranks."""
        answer = self._request("POST", "/weights_checker", {"action": "checksum"})
        parts: dict[str, list[str]] = {}
        for rank in answer["ranks"]:
            for name, checksum in rank["checksums"].items():
                parts.setdefault(name, []).append(checksum)
        return {name: digest(checksums) for name, checksums in parts.items()}

    def update_weights(self, folder: Path, version: int) -> None:
        """Load weights from a folder and check that the server reports their version.

        Raises:
            WeightsNotUpdated: the server says that it can't load them; it keeps those that it has.
            WeightsUnchanged: the server said that it loaded them, and reports another version.
            EngineUnavailable: the server can't be reached or fails.
        """
        try:
            self.command("/update_weights_from_disk", model_path=str(folder), weight_version=str(version))
        except WeightsNotUpdated as error:
            raise WeightsNotUpdated(f"weights {version} from {folder}: {error}") from error
        reported = self.weights_version()
        if reported != version:
            raise WeightsUnchanged(
                f"{self._url} said that it loaded weights {version} from {folder}, but reports version {reported}"
            )

    def command(self, path: str, **body: Any) -> None:
        """Have the server do something to its weights, or to how it generates.

        Raises:
            WeightsNotUpdated: the server refuses, or says that it failed.
            EngineUnavailable: the server can't be reached or fails.
        """
        try:
            answer = self._request("POST", path, body)
        except EngineRefused as error:
            raise WeightsNotUpdated(str(error)) from error
        if not answer.get("success", True):
            raise WeightsNotUpdated(f"{self._url}{path} says {answer.get('message')!r}")

    def release_memory(self, tags: Sequence[str]) -> None:
        """Have the server give up GPU memory. Running requests are aborted, new ones wait.

        Its weights are lost, and it reports TORN until it has others. `continue_generation` then ends the pause.
        Releasing or resuming memory twice would end the server, so these requests are never retried.

        Args:
            tags: The parts of MEMORY that the server still has.

        Raises:
            EngineUnavailable, EngineRefused: it can't, and its state is not known.
        """
        self._request_once("POST", "/pause_generation", {"mode": "abort"})
        self._send("POST", f"/flush_cache?timeout={self._timeout:g}", None)  # a server that is not idle would end
        self._request_once("POST", "/update_weight_version", {"new_version": str(TORN), "abort_all_requests": False})
        self._request_once("POST", "/release_memory_occupation", {"tags": list(tags)})

    def resume_memory(self, tags: Sequence[str]) -> None:
        """Have the server take GPU memory again. The memory has no content yet.

        Args:
            tags: Parts of MEMORY that the server gave up.

        Raises:
            EngineUnavailable, EngineRefused: it can't, and its state is not known.
        """
        self._request_once("POST", "/resume_memory_occupation", {"tags": list(tags)})

    def continue_generation(self) -> None:
        """End a pause."""
        self._request("POST", "/continue_generation", {})

    def weights_version(self) -> int:
        """Return the weights version that the server reports."""
        return int(self._request("GET", "/model_info")["weight_version"])

    @property
    def url(self) -> str:
        """Where the server is reached."""
        return self._url

    def close(self) -> None:
        """Close the connections; the server drops open requests."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        retrying = Retrying(
            retry=retry_if_exception_type(EngineUnavailable),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
            before_sleep=self._count,
            reraise=True,
        )
        return retrying(self._request_once, method, path, body)

    def _request_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        response = self._send(method, path, body)
        return response.json() if response.content else None

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            raise EngineUnavailable(f"{method} {self._url}{path}: {type(error).__name__} {error}") from error
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise EngineUnavailable(f"{method} {self._url}{path}: {response.status_code} {response.text[:500]}")
        if not response.is_success:
            raise EngineRefused(f"{method} {self._url}{path}: {response.status_code} {response.text[:500]}")
        return response

    def _count(self, state: RetryCallState) -> None:
        self.retries += 1
        logger.warning("retry %d: %s", state.attempt_number, state.outcome and state.outcome.exception())


def _response(sample: Mapping[str, Any]) -> Response:
    meta = sample["meta_info"]
    reason = meta["finish_reason"]["type"]
    if reason not in ("stop", "length", "abort"):
        raise EngineRefused(f"unknown finish reason {reason!r}")
    tokens = meta.get("output_token_logprobs") or []  # missing if the engine had not begun
    if len(tokens) != meta["completion_tokens"]:
        raise EngineRefused(f"{meta['completion_tokens']} response tokens came with {len(tokens)} log-probs")
    return Response(
        ids=[token_id for _, token_id, _ in tokens],
        logprobs=[logprob for logprob, _, _ in tokens],
        finish_reason=reason,
        weights_version=int(meta["weight_version"]),
    )
