"""Whether a sample can be used: one check, of what arrives from an engine and of what lies on the disk."""

import math
from collections.abc import Container, Sequence
from typing import Any

from tasks.records.samples import GIVEN_UP, UNFINISHED, SampleRow

FINISHED = ("stop", "length")
ROUNDING = 1e-5
"""Log-probs are logarithms of sums in float32: the largest one may be above 0 by so much."""
LOWEST = -3.4e38
"""Log-probs are stored as float32, in which what is lower is minus infinity."""


def flaw(
    ids: Sequence[Any],
    logprobs: Sequence[Any],
    finish_reason: Any,
    vocabulary: Container[int] | None,
    longest: int | None,
) -> str | None:
    """Return why a response can't be used, or None.

    Args:
        ids: Token ids.
        logprobs: The behaviour log-prob of each.
        finish_reason: `stop`, `length`, or `abort` for one that is not finished and may still be empty.
        vocabulary: The model's token ids. None where they are not known.
        longest: Tokens that a response may have. None where that is not known.
    """
    if finish_reason not in (*FINISHED, UNFINISHED):
        return f"unknown finish reason {finish_reason!r}"
    if len(ids) != len(logprobs):
        return f"{len(ids)} response tokens came with {len(logprobs)} log-probs"
    if not ids and finish_reason != UNFINISHED:
        return f"it ended by {finish_reason} without a token"
    if longest is not None and len(ids) > longest:
        return f"{len(ids)} response tokens are more than the limit of {longest}"
    for place, token in enumerate(ids):
        if type(token) is not int or token < 0 or (vocabulary is not None and token not in vocabulary):
            return f"token {place} is {token!r}, none of the vocabulary"
    for place, logprob in enumerate(logprobs):
        if not _is_logprob(logprob):
            return f"the log-prob of token {place} is {logprob!r}"
    return None


def flaw_of_row(row: SampleRow, vocabulary: Container[int] | None, longest: int | None) -> str | None:
    """Return why a stored sample can't be used, or None. One that was given up can: no update takes it."""
    ids, logprobs, versions = row["response_ids"], row["logprobs"], row["weights_versions"]
    name = f"group {row['group']}, sample {row['index']}"
    if row["finish_reason"] == GIVEN_UP:
        usable = not (ids or logprobs or versions) and row.get("reward") is None
        return None if usable else f"{name}: it was given up, but has tokens or a reward"
    if ids is None or logprobs is None or versions is None or not row["prompt_ids"]:
        return f"{name}: it has no tokens, no log-probs, no versions or no prompt"
    if row["finish_reason"] == UNFINISHED:
        return f"{name}: it is not finished"
    if found := flaw(ids, logprobs, row["finish_reason"], vocabulary, longest):
        return f"{name}: {found}"
    if len(versions) != len(ids) or None in versions:
        return f"{name}: {len(ids)} response tokens have {len(versions)} weights versions"
    if (reward := row.get("reward")) is not None and not math.isfinite(reward):
        return f"{name}: its reward is {reward}"
    return None


def _is_logprob(value: Any) -> bool:
    """NaN compares as false."""
    return isinstance(value, int | float) and not isinstance(value, bool) and LOWEST <= value <= ROUNDING
