"""A shard's rows keep samples, golds, groups and seeds in step, and nothing made by other weights gets in."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tokenizers import Tokenizer

from tasks.records.question import Prompt, Question
from tasks.records.samples import GIVEN_UP, SampleRow
from tasks.records.usable import flaw_of_row
from tasks.rollout.fleet import Fleet
from tasks.rollout.shard import Sampling, StaleWeights, begin, finished_groups, roll_out
from tasks.server.client import EngineClient, EngineRefused, Response
from trainer.model.tiny_policy import build_tokenizer

TOKENIZER = build_tokenizer()
EOS = cast(int, TOKENIZER.eos_token_id)
TEXT = cast(Tokenizer, TOKENIZER.backend_tokenizer)  # pyright: ignore[reportAttributeAccessIssue]
SAMPLING = Sampling(samples=4, max_tokens=16, temperature=1.0, run_seed=7)


class FakeEngine:
    """Answers every prompt with a text that names its seed, and ends it by an EOS unless it is cut."""

    def __init__(self, version: int = 4, finish: str = "stop") -> None:
        self.version, self.finish = version, finish
        self.asked: list[tuple[Sequence[int], int, int]] = []

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        temperature: float,
        max_tokens: Sequence[int],
        ids: Sequence[str],
    ) -> list[Response]:
        self.asked += zip(prompts, seeds, max_tokens, strict=True)
        return [self._answer(seed) for seed in seeds]

    def close(self) -> None: ...

    def _answer(self, seed: int) -> Response:
        ids = TOKENIZER.encode(str(seed)) + ([EOS] if self.finish == "stop" else [])
        return Response(ids, [-0.5] * len(ids), self.finish, self.version)  # pyright: ignore[reportArgumentType]


def prompt(name: str, gold: str) -> Prompt:
    return Prompt(Question(name, name, gold, "test"), TOKENIZER.encode(name))


def fleet_of(engine: FakeEngine, in_flight: int = 4) -> Fleet:
    return Fleet([lambda: cast(EngineClient, engine)], in_flight)


def roll(groups: list[tuple[int, Prompt]], engine: FakeEngine, step: int = 3, version: int = 4) -> list[SampleRow]:
    return roll_out(fleet_of(engine), TEXT, begin(groups, step, SAMPLING), version, SAMPLING)


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


def test_u13_a_sample_that_can_not_be_used_is_given_up_without_its_tokens_and_the_others_stay() -> None:
    class Torn(FakeEngine):
        def _answer(self, seed: int) -> Response:
            response = super()._answer(seed)
            return replace(response, logprobs=[None] * len(response.ids)) if seed == lost["seed"] else response  # pyright: ignore[reportArgumentType]

    groups = [(0, prompt("p1", "a"))]
    lost = begin(groups, 3, SAMPLING)[2]

    rows = roll(groups, Torn())

    assert [row["finish_reason"] for row in rows] == ["stop", "stop", GIVEN_UP, "stop"]
    assert (rows[2]["response_ids"], rows[2]["logprobs"], rows[2]["weights_versions"], rows[2]["text"]) == (
        [],
        [],
        [],
        "",
    )
    assert rows[2]["flaw"] == "the log-prob of token 0 is None"
    assert rows[:2] + rows[3:] == roll(groups, FakeEngine())[:2] + roll(groups, FakeEngine())[3:]
    assert finished_groups(rows) == [0]
    assert all(flaw_of_row(row, range(TEXT.get_vocab_size()), SAMPLING.max_tokens) is None for row in rows)


def test_u34_the_next_try_goes_on_with_the_samples_that_were_kept() -> None:
    class Refusing(FakeEngine):
        def generate(self, *arguments: Any, **named: Any) -> list[Response]:
            if arguments[0][0] == refused.ids:
                raise EngineRefused("400")
            return super().generate(*arguments, **named)

    refused = prompt("p9", "a")
    groups = [(number, refused if number == 2 else prompt(f"p{number}", "a")) for number in range(4)]
    kept: list[SampleRow] = []
    with pytest.raises(EngineRefused), fleet_of(Refusing(), in_flight=1) as fleet:
        roll_out(fleet, TEXT, begin(groups, 3, SAMPLING), 4, SAMPLING, salvage=kept.extend)
    assert finished_groups(kept) == [0, 1]

    sound = FakeEngine()
    rows = roll_out(fleet_of(sound), TEXT, kept, 4, SAMPLING)

    assert len(sound.asked) == 8
    assert rows == roll(groups, FakeEngine())


def test_a_sample_of_other_weights_is_refused() -> None:
    with pytest.raises(StaleWeights, match=r"asked for weights 5; the engine answered with 4"):
        roll([(0, prompt("p1", "a"))], FakeEngine(version=4), version=5)


def test_a_sample_that_is_gone_on_with_keeps_its_tokens_with_the_versions_that_made_them() -> None:
    begun = begin([(0, prompt("p1", "a"))], step=3, sampling=SAMPLING)
    begun[0] |= {"response_ids": [5, 6], "logprobs": [-0.1, -0.2], "weights_versions": [3, 3]}
    engine = FakeEngine(version=4)

    row, *_ = roll_out(fleet_of(engine), TEXT, begun, 4, SAMPLING)

    new = len(row["response_ids"]) - 2
    assert row["response_ids"][:2] == [5, 6]
    assert row["weights_versions"] == [3, 3] + [4] * new
    assert row["logprobs"] == [-0.1, -0.2] + [-0.5] * new
    assert engine.asked[0] == ([*prompt("p1", "a").ids, 5, 6], row["seed"], SAMPLING.max_tokens - 2)


def test_finished_samples_are_not_asked_for_again() -> None:
    begun = begin([(0, prompt("p1", "a")), (1, prompt("p2", "b"))], step=3, sampling=SAMPLING)
    done = [row | {"finish_reason": "stop"} if row["group"] == 0 else row for row in begun]
    engine = FakeEngine()

    rows = roll_out(fleet_of(engine), TEXT, done, 4, SAMPLING)

    assert len(engine.asked) == 4
    assert rows[:4] == done[:4]
    assert finished_groups(rows) == [0, 1]


def test_a_sample_cut_off_at_the_token_limit_is_finished_by_length() -> None:
    begun = begin([(0, prompt("p1", "a"))], step=3, sampling=SAMPLING)
    begun = [row | {"response_ids": [5] * 15, "logprobs": [-0.1] * 15, "weights_versions": [3] * 15} for row in begun]

    class Cut(FakeEngine):
        def _answer(self, seed: int) -> Response:
            return Response([5], [-0.5], "stop" if self.finish == "stop" else "length", self.version)

    rows = roll_out(fleet_of(Cut(finish="length")), TEXT, begun, 4, SAMPLING)
    assert {row["finish_reason"] for row in rows} == {"length"}
