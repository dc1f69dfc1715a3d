"""The published tests of other graders: data in one form, and the committed verdicts on all of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.grader_tests import read_pairs, read_reasons, repository, response

ROOT = Path(__file__).parents[3]
ROWS: list[dict[str, Any]] = json.loads((ROOT / "tests/data/grader_tests.json").read_text())
COMMITTED = json.loads((ROOT / "benchmarks/grader_tests.json").read_text())


def test_rows_have_one_form_and_are_sorted_by_source():
    for row in ROWS:
        assert {"source", "gold", "response", "expected", "form"} <= row.keys()
        assert row.keys() <= {"source", "gold", "response", "expected", "form", "kind", "options", "also", "differs"}
        assert row["form"] in ("response", "answer")
        assert row.get("kind") in (None, "latex", "expr", "string", "choice", "numeric")
        assert isinstance(row["expected"], bool)
    assert [row["source"].lower() for row in ROWS] == sorted(row["source"].lower() for row in ROWS)


def test_no_pair_stands_twice_with_the_same_verdict():
    keys = [
        (
            row["gold"],
            row["response"],
            row["form"],
            row["expected"],
            row.get("kind") == "choice",
            str(row.get("options")),
        )
        for row in ROWS
    ]
    assert len(set(keys)) == len(keys)


def test_the_list_of_sources_names_them_all():
    listed = (ROOT / "tests/data/grader_tests.md").read_text()
    assert [name for name in {repository(row) for row in ROWS} if f"| {name} |" not in listed] == []


def test_the_committed_table_is_of_all_pairs():
    assert COMMITTED["numbers"]["pairs"] == len(read_pairs())
    assert sum(row["agree"] for row in COMMITTED["sources"].values()) == COMMITTED["numbers"]["agree"]


def test_reasons_are_of_pairs_that_exist():
    assert read_reasons().keys() <= {(pair["gold"], pair["response"]) for pair in read_pairs()}


@pytest.mark.parametrize(
    ("form", "given", "scored"),
    [
        ("answer", "2", r"\boxed{2}"),
        ("answer", r"\boxed{2}", r"\boxed{2}"),
        ("response", "It is 2.", "It is 2."),
    ],
)
def test_a_bare_answer_is_boxed(form: str, given: str, scored: str):
    assert response({"form": form, "response": given}) == scored
