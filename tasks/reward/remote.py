"""Parts whose value a server gives: a reward model, or a language model that judges."""

import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from configs.errors import UserError
from configs.reward import Http, Judge
from tasks.reward.answers import final_part
from tasks.reward.outcome import Answered, Outcome

_MARK = re.compile(r"^\W*score\W*?([-+]?\d+(?:\.\d+)?)\W*$", re.IGNORECASE | re.MULTILINE)
_LONGEST_WAIT = 30.0  # Seconds between two attempts.
_AWAY = (502, 503, 504)
"""What a gateway answers in the place of a server that is away."""


def ask(part: Http, batch: Sequence[Answered], away: float = 0.0) -> list[Outcome]:
    """Ask the server about every sample; in order.

    A request that fails (no connection, too many requests, a server's error) is made again after a random, growing
    time, `attempts` times in all, and more often while the server is away. If all fail, or if the answer is no mark,
    its samples are errors.

    Args:
        part: The server, and what to ask it.
        batch: The samples.
        away: Seconds from now on that a server may be away, for all samples together.

    Raises:
        UserError: the environment variable for the API key isn't set.
    """
    size = 1 if part.judge else part.batch_size
    batches = [batch[start : start + size] for start in range(0, len(batch), size)]
    back_by = time.monotonic() + away
    with (
        httpx.Client(headers=_headers(part), timeout=part.request_timeout_seconds) as client,
        ThreadPoolExecutor(part.concurrency) as threads,
    ):
        return [
            outcome
            for outcomes in threads.map(partial(_ask_batch, client, part, back_by), batches)
            for outcome in outcomes
        ]


def _ask_batch(client: httpx.Client, part: Http, back_by: float, batch: Sequence[Answered]) -> list[Outcome]:
    try:
        if part.judge:
            marks = [_read_mark(_post(client, part, back_by, _judge_request(part.judge, batch[0])))]
        else:
            marks = _post(client, part, back_by, {"samples": [_sample(answered) for answered in batch]})["scores"]
        if len(marks) != len(batch):
            raise ValueError(f"{len(marks)} scores for {len(batch)} samples")
        return [Outcome(_to_unit(float(mark), part.scale)) for mark in marks]
    except (httpx.HTTPError, ValueError, TypeError, KeyError, IndexError) as error:
        return [Outcome(None, "error", f"{part.url}: {type(error).__name__}: {error}")] * len(batch)


def _post(client: httpx.Client, part: Http, back_by: float, body: dict[str, Any]) -> dict[str, Any]:
    def enough(attempt: RetryCallState) -> bool:
        failed = attempt.outcome.exception() if attempt.outcome else None
        return attempt.attempt_number >= part.attempts and not (_is_away(failed) and time.monotonic() < back_by)

    attempts = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=enough,
        wait=wait_random_exponential(max=_LONGEST_WAIT),
        reraise=True,
    )
    return attempts(lambda: client.post(part.url, json=body).raise_for_status().json())


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)


def _is_away(error: BaseException | None) -> bool:
    """Whether there was no server to answer. One that answers late may be at work on what it was asked."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _AWAY
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.ReadTimeout)


def _headers(part: Http) -> dict[str, str]:
    if part.api_key_variable is None:
        return {}
    key = os.environ.get(part.api_key_variable)
    if not key:
        raise UserError(f"reward: {part.url} needs an API key in the environment variable {part.api_key_variable}")
    return {"Authorization": f"Bearer {key}"}


def _sample(answered: Answered) -> dict[str, str]:
    question = answered.question
    return {"id": question.id, "question": question.text, "gold": question.gold, "response": answered.text}


def _judge_request(judge: Judge, answered: Answered) -> dict[str, Any]:
    fields = _sample(answered) | {"response": final_part(answered.said) or ""}
    # In one pass, so that names in the response are not filled in.
    prompt = re.sub(r"\{(question|gold|response)\}", lambda name: fields[name[1]], judge.prompt)
    return {
        "model": judge.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0.0,
        "max_tokens": judge.max_tokens,
    }


def _read_mark(reply: dict[str, Any]) -> str:
    marks = _MARK.findall(reply["choices"][0]["message"]["content"])
    if not marks:
        raise ValueError("the judge's reply has no line `Score: <number>`")
    return marks[-1]


def _to_unit(mark: float, scale: tuple[float, float]) -> float:
    """Bring a mark from the scale to [0, 1]; NaN is no mark."""
    if mark != mark:
        raise ValueError("the mark is NaN")
    low, high = scale
    return min(1.0, max(0.0, (mark - low) / (high - low)))
