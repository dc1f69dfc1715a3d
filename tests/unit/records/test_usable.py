"""What can't be used is named; what an engine may rightly say passes."""

import math
from typing import Any

import pytest

from tasks.records.samples import GIVEN_UP
from tasks.records.usable import flaw, flaw_of_row

SOUND: dict[str, Any] = {
    "group": 3,
    "index": 1,
    "prompt_ids": [5],
    "response_ids": [0, 9],
    "logprobs": [-0.5, 0.0],
    "weights_versions": [4, 4],
    "finish_reason": "stop",
    "reward": 1.0,
}


@pytest.mark.parametrize(
    ("ids", "logprobs", "reason"),
    [
        ([0, 9], [-0.5, 0.0], "stop"),
        ([1] * 4, [-80.0] * 4, "length"),  # as long as the limit; very unlikely tokens
        ([1], [1e-7], "stop"),  # the rounding of a softmax in float32
        ([1], [0], "stop"),  # JSON's 0 is an integer
        ([], [], "abort"),  # not begun
    ],
)
def test_what_an_engine_may_say_passes(ids: list[int], logprobs: list[float], reason: str) -> None:
    assert flaw(ids, logprobs, reason, vocabulary=range(10), longest=4) is None


@pytest.mark.parametrize(
    "logprob", [None, math.nan, math.inf, -math.inf, 0.1, 1e-3, "-0.5", True, [-0.5], -1e39], ids=repr
)
def test_u13_a_log_prob_that_is_none_is_named_with_its_place(logprob: Any) -> None:
    assert flaw([1, 2], [-0.5, logprob], "stop", range(10), 4) == f"the log-prob of token 1 is {logprob!r}"


@pytest.mark.parametrize("token", [10, 2**31, -1, None, 1.0, True, "a"], ids=repr)
def test_u13_an_id_that_is_none_of_the_vocabulary_is_named(token: Any) -> None:
    assert flaw([1, token], [-0.5, -0.5], "stop", range(10), 4) == f"token 1 is {token!r}, none of the vocabulary"


@pytest.mark.parametrize(
    ("ids", "reason", "expected"),
    [
        ([], "stop", "it ended by stop without a token"),
        ([], "length", "it ended by length without a token"),
        ([1] * 5, "length", "5 response tokens are more than the limit of 4"),
        ([1], "tool_calls", "unknown finish reason 'tool_calls'"),
        ([1], None, "unknown finish reason None"),
        ([1], GIVEN_UP, "unknown finish reason 'error'"),
    ],
)
def test_u13_a_wrong_length_or_reason_is_named(ids: list[int], reason: Any, expected: str) -> None:
    assert flaw(ids, [-0.5] * len(ids), reason, range(10), 4) == expected


def test_lengths_that_differ_are_named() -> None:
    assert flaw([1, 2, 3], [-0.5, -0.7], "stop", range(10), 4) == "3 response tokens came with 2 log-probs"


def test_a_sound_row_passes_and_so_does_one_that_was_given_up() -> None:
    nothing: dict[str, Any] = {"response_ids": [], "logprobs": [], "weights_versions": []}
    assert flaw_of_row(SOUND, range(10), 4) is None
    assert flaw_of_row({**SOUND, **nothing, "finish_reason": GIVEN_UP, "reward": None}, range(10), 4) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"logprobs": [-0.5, None]}, "the log-prob of token 1 is None"),
        ({"logprobs": [-0.5, math.nan]}, "the log-prob of token 1 is nan"),
        ({"response_ids": [0, 10]}, "token 1 is 10, none of the vocabulary"),
        ({"logprobs": [-0.5]}, "2 response tokens came with 1 log-probs"),
        ({"weights_versions": [4]}, "2 response tokens have 1 weights versions"),
        ({"weights_versions": [4, None]}, "2 response tokens have 2 weights versions"),
        ({"logprobs": None}, "it has no tokens, no log-probs, no versions or no prompt"),
        ({"finish_reason": "abort"}, "it is not finished"),
        ({"prompt_ids": []}, "it has no tokens, no log-probs, no versions or no prompt"),
        ({"reward": math.nan}, "its reward is nan"),
        ({"finish_reason": GIVEN_UP}, "it was given up, but has tokens or a reward"),
    ],
    ids=str,
)
def test_u13_a_stored_row_that_can_not_be_used_is_named_with_its_place(change: dict[str, Any], expected: str) -> None:
    assert flaw_of_row({**SOUND, **change}, range(10), 4) == f"group 3, sample 1: {expected}"
