"""An HTTP client of one SGLang server: token ids in, token ids and log-probs out."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Self
from uuid import uuid4

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from configs.timeouts import Timeouts
from tasks.records.samples import UNFINISHED
from trainer.files import digest

logger = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT = 0.5  # Seconds; the wait before a retry is random, up to this limit, which doubles each time.
LONGEST_WAIT = 10.0  # Seconds.
SIGN_OF_LIFE = 30.0
"""Seconds until a server that lives has said so: SGLang's own check gives up after 20 (its HEALTH_CHECK_TIMEOUT)."""
TORN = -2
"""The version that a server reports while it has no weights or they change. It stays if the change is cut off."""
UNTOUCHED = {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling settings that leave the model's distribution as it is. They are named in each request, since a model's
generation config or a server may have others as defaults, and log-probs of another distribution would be trained on."""
NOT_A_NUMBER = "NaN happened"
"""What SGLang says it stopped at when a logit was none, or a sampled id not of the vocabulary: it puts an EOS there."""
WEIGHTS = "weights"
MEMORY = (WEIGHTS, "kv_cache", "cuda_graph")
"""The GPU memory that a server can give up, by SGLang's names."""


class EngineUnavailable(RuntimeError):
    """An engine did not answer, or only with server errors, after bounded retries."""


class EngineSlow(EngineUnavailable):
    """An engine has not answered a request in time."""


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


@dataclass
class Attempts:
    """The attempts at a request: how many there were, and how long the next one may take."""

    seconds: float
    begun: int = 0


@dataclass(frozen=True)
class Response:
    """What an engine generated for one sample.

    Attributes:
        ids: Token ids; the last one is an end token if the finish reason is `stop`, or the last ones are those of the
            text at which it stopped.
        logprobs: Behaviour log-prob of each token under the sampling temperature, as long as ids.
        finish_reason: `stop` at an end token or a text that ends it, `length` at the token limit, `abort` if it was cut
            off before.
        weights_version: Version that the server reported with the response.
        at_text: Whether it stopped at a text and not at an EOS.
        flaw: Why it can't be read, or can't be what the model said; the rest then means nothing.
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length", "abort"]
    weights_version: int
    flaw: str | None = None
    at_text: bool = False


class EngineClient:
    """Talks to one server. Safe to use from several threads.

    Timeouts, broken connections and server errors (5xx) are retried a few times; refusals (4xx) never. A request for
    samples is another one each time: SGLang refuses an id that it still works on, so what it may still generate for the
    last attempt is aborted, and the next one has new ids.

    Attributes:
        retries: Number of retries so far.
    """

    def __init__(
        self, endpoint: Endpoint, attempts: int = ATTEMPTS, ends: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        """Prepare to talk to a server.

        Args:
            endpoint: Where it is reached.
            attempts: Number of tries of a request.
            ends: Token ids that end a response, beside those that the server knows.
            stop: Texts that end a response; the server needs a tokenizer to find them.
        """
        logging.getLogger("httpx").setLevel(logging.WARNING)  # It logs every request.
        self.retries = 0
        self._attempts = attempts
        self._stop = {"stop_token_ids": list(ends)} | ({"stop": list(stop)} if stop else {})
        self._current: dict[str, str] = {}  # by the name of a sample its id at the server
        self._url, self._timeout, self._connect = endpoint.url, endpoint.timeout, endpoint.connect
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
            One response a prompt, in order. An aborted one has the finish reason `abort` and its tokens so far. One
            that can't be read says why in `flaw`.

        Raises:
            EngineSlow: the server lives and generates, and has not answered in several times its time.
            EngineUnavailable: the server can't be reached or fails.
            EngineRefused: the server says the request is wrong, or its answer does not fit together.
        """
        limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
        body = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": [
                {
                    **UNTOUCHED,
                    **self._stop,
                    "temperature": temperature,
                    "max_new_tokens": longest,
                    "sampling_seed": seed,
                }
                for seed, longest in zip(seeds, limits, strict=True)
            ],
            "return_logprob": True,
        }
        names = list(ids or (uuid4().hex for _ in prompts))
        try:
            answer = self._retrying()(self._generate_once, body, names, Attempts(self._timeout))
        finally:
            for name in names:
                self._current.pop(name, None)
        if not isinstance(answer, list) or len(answer) != len(prompts):
            count = len(answer) if isinstance(answer, list) else "no"
            raise EngineRefused(f"{self._url} answered {count} responses to {len(prompts)} prompts")
        return [_response(sample) for sample in answer]

    def abort(self, name: str) -> None:
        """Have the server end a sample that it generates; it then answers with the tokens so far.

        Args:
            name: The sample's, as given to `generate`. Nothing happens if it is not with the server now.
        """
        if current := self._current.get(name):
            self._request_once("POST", "/abort_request", {"rid": current})

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

    def _generate_once(self, body: dict[str, Any], names: Sequence[str], attempts: Attempts) -> Any:
        """Ask for samples under new ids. If that fails, have the server forget them, and see whether it lives."""
        attempts.begun += 1
        again = "" if attempts.begun == 1 else f"-{attempts.begun}"
        for name in names:
            self._current[name] = f"{name}{again}"
        asked = body | {"rid": [self._current[name] for name in names]}
        try:
            return self._request_once("POST", "/generate", asked, attempts.seconds)
        except EngineUnavailable as error:
            with suppress(EngineUnavailable, EngineRefused):
                for name in names:
                    self._request_once("POST", "/abort_request", {"rid": self._current[name]}, SIGN_OF_LIFE)
            if isinstance(error, EngineSlow):
                self._look_at_slow(error, attempts)
            raise

    def _look_at_slow(self, error: EngineSlow, attempts: Attempts) -> None:
        """Give the next attempt more time if the server lives; else it is no slow server but one that is lost."""
        try:
            self._request_once("GET", "/health_generate", None, SIGN_OF_LIFE)
        except (EngineUnavailable, EngineRefused) as silence:
            raise EngineUnavailable(f"{error}; nor does it say that it lives: {silence}") from error
        logger.warning("%s, but the engine lives: a slow response, which gets more time", error)
        attempts.seconds *= 2

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._retrying()(self._request_once, method, path, body)

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(EngineUnavailable),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
            before_sleep=self._count,
            reraise=True,
        )

    def _request_once(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None = None
    ) -> Any:
        response = self._send(method, path, body, timeout)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise EngineUnavailable(f"{method} {self._url}{path}: its answer is no JSON: {error}") from error

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None = None
    ) -> httpx.Response:
        limits = httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout, connect=self._connect)
        try:
            response = self._http.request(method, path, json=body, timeout=limits)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise EngineSlow(f"{method} {self._url}{path}: {type(error).__name__} {error}") from error
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
    """Read one response. What it holds is judged by who asked for it: see `tasks.records.usable`."""
    try:
        meta = sample["meta_info"]
        reason, version = meta["finish_reason"], int(meta["weight_version"])
        tokens = meta.get("output_token_logprobs") or []  # missing if the engine had not begun
        ids, logprobs = [token for _, token, *_ in tokens], [logprob for logprob, *_ in tokens]
        found = _contradiction(ids, sample.get("output_ids"), meta["completion_tokens"], reason.get("matched"))
        return Response(ids, logprobs, reason["type"], version, found, isinstance(reason.get("matched"), str))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return Response([], [], UNFINISHED, TORN, f"it can't be read: {type(error).__name__}: {error}")


def _contradiction(ids: Sequence[Any], sent: Sequence[Any] | None, count: int, matched: Any) -> str | None:
    """Return what shows that log-probs and ids are not those of one response, or None."""
    if matched == NOT_A_NUMBER:
        return f"the engine says {NOT_A_NUMBER!r}"
    if len(ids) != count:
        return f"{count} response tokens came with {len(ids)} log-probs"
    if sent is not None and list(sent) != list(ids):
        return "its log-probs are of other tokens than its ids"
    return None
