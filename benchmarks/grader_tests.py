r"""The scorer on the published tests of other graders: where it gives their verdicts, and where not.

    python -m benchmarks.grader_tests

The pairs are those of tests/data/grader_tests.json (its sources and form: tests/data/grader_tests.md) and those of
math-verify in tests/data/math_verify_examples.json. Bare answers are scored in a box, `\boxed{…}`; the kind is `math`
unless the test is one of numbers or of multiple choice. Why a verdict differs is told by
tests/data/grader_tests_reasons.json, `{reason: [[gold, response], …]}`.

Writes benchmarks/grader_tests.json (machine, command, numbers, disagreements) and .md (the same as tables).
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.reward import Reward
from tasks.records.question import Question
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer
from tasks.tracking.provenance import provenance

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data"
KINDS = {"numeric": "numeric", "choice": "choice"}
"""Kind of the reward by the pair's, where it isn't `math`."""
LIMIT = 20.0
CELL = 160
"""Longer texts are cut in the table."""

Row = dict[str, Any]


def main() -> None:
    pairs = read_pairs()
    statuses = score(pairs)
    disagreements = compare(pairs, statuses, read_reasons())
    sources = count(pairs, disagreements)
    report = {
        "command": "python -m benchmarks.grader_tests",
        **provenance(),
        "limit_seconds": LIMIT,
        "numbers": {
            "pairs": len(pairs),
            "agree": len(pairs) - len(disagreements),
            "right here only": sum(row["ours"] == "right" for row in disagreements),
            "right there only": sum(row["expected"] for row in disagreements),
            "without a reason": sum(not row["reason"] for row in disagreements),
        },
        "sources": sources,
        "disagreements": disagreements,
    }
    target = HERE / "grader_tests"
    target.with_suffix(".json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    target.with_suffix(".md").write_text(text(report))
    print(json.dumps(report["numbers"], indent=1))


def read_pairs() -> list[Row]:
    """Return the published tests, those of the older file in the form of the newer."""
    pairs: list[Row] = json.loads((DATA / "grader_tests.json").read_text())
    for example in json.loads((DATA / "math_verify_examples.json").read_text()):
        pairs.append(
            {
                "source": "huggingface/Math-Verify (math_verify_examples.json)",
                "gold": example["gold"],
                "response": example["response"],
                "expected": example["right"],
                "form": "response",
                "differs": example.get("scorer_differs_because", ""),
            }
        )
    return pairs


def read_reasons() -> dict[tuple[str, str], str]:
    """Return why a verdict differs, by gold and response."""
    reasons: dict[str, list[list[str]]] = json.loads((DATA / "grader_tests_reasons.json").read_text())
    return {(gold, response): reason for reason, pairs in reasons.items() for gold, response in pairs}


def score(pairs: Sequence[Row]) -> list[str]:
    """Return the scorer's status of each pair."""
    by_kind = {kind: reward(accuracy) for kind, accuracy in KINDS.items()}
    samples = [
        Answered(response(pair), Question(f"q{place}", "", pair["gold"], pair.get("kind") or "math"), "stop", 200)
        for place, pair in enumerate(pairs)
    ]
    with Scorer(reward("math"), by_kind) as scorer:
        return [scored.status for scored in scorer.score(samples)]


def reward(accuracy: str) -> Reward:
    return Reward.model_validate({"accuracy": accuracy, "timeout_seconds": LIMIT})


def response(pair: Row) -> str:
    """Return the pair's response; a bare answer in a box."""
    given: str = pair["response"]
    return given if pair["form"] == "response" or r"\boxed" in given else rf"\boxed{{{given}}}"


def compare(pairs: Sequence[Row], statuses: Sequence[str], reasons: Mapping[tuple[str, str], str]) -> list[Row]:
    """Return the pairs whose verdict differs from the published one."""
    return [
        {
            **{key: value for key, value in pair.items() if key != "differs"},
            "ours": status,
            "reason": pair.get("differs") or reasons.get((pair["gold"], pair["response"]), ""),
        }
        for pair, status in zip(pairs, statuses, strict=True)
        if (status == "right") != pair["expected"]
    ]


def count(pairs: Sequence[Row], disagreements: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return, by repository: its pairs, those with the same verdict, and the others by which of the two says right."""
    every, there = Counter(map(repository, pairs)), Counter(repository(row) for row in disagreements if row["expected"])
    here = Counter(repository(row) for row in disagreements if not row["expected"])
    return {
        name: {
            "pairs": every[name],
            "agree": every[name] - here[name] - there[name],
            "right here only": here[name],
            "right there only": there[name],
        }
        for name in sorted(every, key=str.lower)
    }


def repository(pair: Row) -> str:
    return pair["source"].split()[0]


def text(report: Row) -> str:
    lines = [
        "# The published tests of other graders",
        "",
        f"`{report['command']}` on {report['machine']}, commit {report['commit'][:10]}.",
        "Sources, licences and form of the pairs: [tests/data/grader_tests.md](../tests/data/grader_tests.md).",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value:,} |" for name, value in report["numbers"].items()),
        "",
        "| source | pairs | agree | right here only | right there only |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {name} | " + " | ".join(map(str, row.values())) + " |" for name, row in report["sources"].items()]
    lines += ["", "## Disagreements", "", "| gold | response | published | here | options | source | reason |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in report["disagreements"]:
        cells = [
            code(row["gold"]),
            code(row["response"]),
            "right" if row["expected"] else "wrong",
            row["ours"],
            code(json.dumps(row["options"])) if "options" in row else "",
            row["source"],
            row["reason"] or "**none yet**",
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def code(given: str) -> str:
    """Return a text as one line of code."""
    line = given.replace("\n", "⏎")
    line = line if len(line) <= CELL else f"{line[: CELL // 2]} … {line[-CELL // 2 :]}"
    return f"`` {line} ``" if "`" in line else f"`{line}`"


if __name__ == "__main__":
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    main()
