"""A shard's rows keep samples, golds, groups and seeds in step, and nothing made by other weights gets in."""

from collections.abc import Sequence
from typing import cast

import pytest
from tokenizers import Tokenizer

from tasks.dataset.question import Question
from tasks.dataset.store import Prompt
from tasks.rollout.client import EngineClient, Response
from tasks.rollout.samples import Row
from tasks.rollout.shard import Sampling, StaleWeights, roll_out
from trainer.tiny_policy import build_tokenizer

TOKENIZER = build_tokenizer()
EOS = cast(int, TOKENIZER.eos_token_id)


class FakeEngine:
    """Answers every prompt with a text that names its seed, and ends it by an EOS unless it is cut."""

    def __init__(self, version: int = 4, finish: str = "stop") -> None:
        self.version, self.finish = version, finish

    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Response]:
        return [self._answer(seed) for seed in seeds]

    def _answer(self, seed: int) -> Response:
        ids = TOKENIZER.encode(str(seed)) + ([EOS] if self.finish == "stop" else [])
        return Response(ids, [-0.5] * len(ids), self.finish, self.version)  # pyright: ignore[reportArgumentType]


def prompt(name: str, gold: str) -> Prompt:
    return Prompt(Question(name, name, gold, "test"), TOKENIZER.encode(name))


def roll(groups: list[tuple[int, Prompt]], engine: FakeEngine, step: int = 3, version: int = 4) -> list[Row]:
    sampling = Sampling(samples=4, max_tokens=12, temperature=1.0, run_seed=7)
    tokenizer = cast(Tokenizer, TOKENIZER.backend_tokenizer)  # pyright: ignore[reportAttributeAccessIssue]
    return roll_out(cast(EngineClient, engine), tokenizer, groups, step, version, sampling)


def test_samples_golds_and_groups_stay_in_step() -> None:
    rows = roll([(0, prompt("p1", "a")), (1, prompt("p2", "b"))], FakeEngine())

    assert [row["group"] for row in rows] == [0] * 4 + [1] * 4
    assert [row["gold"] for row in rows] == ["a"] * 4 + ["b"] * 4
    assert [row["index"] for row in rows] == [0, 1, 2, 3] * 2


def test_every_sample_has_its_own_seed_whatever_shard_makes_it() -> None:
    first, second = (0, prompt("p1", "a")), (1, prompt("p2", "b"))

    together = roll([first, second], FakeEngine())
    apart = roll([second], FakeEngine()) + roll([first], FakeEngine())

    assert len({row["seed"] for row in together}) == 8
    assert sorted(row["text"] for row in together) == sorted(row["text"] for row in apart)
    assert {row["text"] for row in together}.isdisjoint(row["text"] for row in roll([first], FakeEngine(), step=4))


def test_the_text_has_no_end_token_and_the_ids_keep_it() -> None:
    (row, *_) = roll([(0, prompt("p1", "a"))], FakeEngine())

    assert row["text"] == str(row["seed"])
    assert row["response_ids"][-1] == EOS
    assert len(row["logprobs"]) == len(row["response_ids"]) == len(row["weights_versions"])


def test_a_cut_response_keeps_its_last_token_in_the_text() -> None:
    (row, *_) = roll([(0, prompt("p1", "a"))], FakeEngine(finish="length"))

    assert row["text"] == str(row["seed"])
    assert row["finish_reason"] == "length"


def test_a_sample_of_other_weights_is_refused() -> None:
    with pytest.raises(StaleWeights, match=r"asked for weights 5; the engine answered with \[4\]"):
        roll([(0, prompt("p1", "a"))], FakeEngine(version=4), version=5)
