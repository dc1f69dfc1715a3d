"""The kind `math` against math-verify on its own: its published examples, and pairs drawn from a seed.

Every difference is on purpose and has its reason written down: that of a published example in
tests/data/math_verify_examples.json (the short ones of math-verify's own tests, MIT licence, © 2024 The HuggingFace
Team), that of a generated pair in benchmarks/scoring.py. benchmarks/scoring-agreement.md sums up 7,200 pairs.
"""

import json
from pathlib import Path

import pytest

from benchmarks.answer_pairs import FOUND_IN_USE, generate
from benchmarks.scoring import ask_math_verify, reason, score_pairs
from tests.unit.reward.conftest import Answer, MakeScorer

ROOT = Path(__file__).parents[3]
EXAMPLES = json.loads((ROOT / "tests/data/math_verify_examples.json").read_text())
COMMITTED = json.loads((ROOT / "benchmarks/scoring-agreement.json").read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example['gold']} {example['response']}"[:40])
def test_math_verifys_examples_get_its_verdict_unless_there_is_a_reason(
    example: dict[str, str | bool], make_scorer: MakeScorer, answer: Answer
):
    scorer = make_scorer(accuracy="math", timeout_seconds=30.0)
    [score] = scorer.score([answer(example["gold"], example["response"])])
    agrees = (score.status == "right") == example["right"]
    assert agrees != ("scorer_differs_because" in example)


def test_generated_pairs_get_the_right_verdict_and_differ_from_math_verify_for_known_reasons_only():
    pairs = list(generate(0, 150))
    ours = score_pairs(pairs)
    wrong = [(pair, verdict) for pair, verdict in zip(pairs, ours, strict=True) if verdict != pair.equal]
    assert [pair.form for pair, _ in wrong] == []
    different = [pair for pair, verdict in zip(pairs, ours, strict=True) if verdict != ask_math_verify(pair)]
    assert all(reason(pair.form) for pair in different)
    # The first of the committed table's rows are these.
    rows = [(row["form"], row["gold"], row["response"]) for row in COMMITTED["disagreements"]]
    assert rows[: len(different)] == [(pair.form, pair.gold, pair.response) for pair in different]


def test_generated_pairs_of_the_kinds_found_in_use_get_the_right_verdict():
    pairs = list(generate(2, 200, FOUND_IN_USE))
    ours = score_pairs(pairs)
    wrong = [(pair, verdict) for pair, verdict in zip(pairs, ours, strict=True) if verdict != pair.equal]
    assert [pair.form for pair, _ in wrong] == []
    assert {verdict for verdict in ours} == {True, False}


def test_the_committed_table_is_of_seven_thousand_pairs_and_explains_every_difference():
    assert COMMITTED["numbers"]["pairs"] >= 7200
    assert COMMITTED["numbers"]["scorer right"] == COMMITTED["numbers"]["pairs"]
    assert all(row["reason"] == reason(row["form"]) for row in COMMITTED["disagreements"])
