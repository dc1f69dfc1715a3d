"""What preparation found: what came of each source, how long prompts are, and what was left out and why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.records.question import Finding, Question

_EXAMPLES = 3
_DETAIL = 160  # Characters of an example.
_PERCENTILES = {"shortest": 0, "median": 50, "95 %": 95, "longest": 100}


@dataclass(frozen=True)
class Report:
    """The data report, as it is stored in the prepared folder.

    `sources` has, by label, the `rows` (read or drawn) and what became of them: `training` and `evaluation` prompts,
    `left out`, or `not needed` by the sizes that the recipe asks for. `prompt_tokens` has the percentiles of both kinds
    of prompt. `dropped` and `noted` have by reason the number of `rows` and a few `examples`, each with its `id` (file
    and line) and a `detail`; what is noted was kept.
    """

    sources: dict[str, dict[str, int]]
    prompt_tokens: dict[str, dict[str, int]]
    dropped: dict[str, dict[str, object]]
    noted: dict[str, dict[str, object]]


def build_report(
    rows: Mapping[str, int],
    train: Sequence[tuple[Question, Sequence[int]]],
    held_out: Sequence[tuple[Question, Sequence[int]]],
    dropped: Sequence[Finding],
    noted: Sequence[Finding],
) -> Report:
    """Sum up a preparation.

    Args:
        rows: Rows of each source by its label.
        train: Training questions with their prompt ids.
        held_out: Evaluation questions with their prompt ids.
        dropped: What was left out.
        noted: What was kept but deserves a look.
    """
    splits = {"training": train, "evaluation": held_out}
    fates = {name: Counter(question.source for question, _ in prompts) for name, prompts in splits.items()}
    fates["left out"] = Counter(finding.source for finding in dropped)
    sources = {}
    for label, count in rows.items():
        became = {fate: counts[label] for fate, counts in fates.items()}
        sources[label] = {"rows": count, **became, "not needed": count - sum(became.values())}
    lengths = {name: [len(ids) for _, ids in prompts] for name, prompts in splits.items()}
    return Report(
        sources=sources,
        prompt_tokens={name: _percentiles(tokens) for name, tokens in lengths.items()},
        dropped=_by_reason(dropped),
        noted=_by_reason(noted),
    )


def markdown(report: Report) -> str:
    """Return the report as Markdown: for Prefect's page, MLflow and the terminal."""
    columns = ["rows", "training", "evaluation", "left out", "not needed"]
    sources = [[label, *(counts[column] for column in columns)] for label, counts in report.sources.items()]
    parts = [
        _table(["source", *columns], sources),
        _table(
            ["prompt tokens", *_PERCENTILES], [[name, *found.values()] for name, found in report.prompt_tokens.items()]
        ),
    ]
    for title, reasons in (("left out", report.dropped), ("noted, and kept", report.noted)):
        lines = [[reason, found["rows"], _examples(found["examples"])] for reason, found in reasons.items()]
        parts.append(_table([title, "rows", "for example"], lines or [["nothing", 0, ""]]))
    return "\n\n".join(parts)


def _percentiles(tokens: Sequence[int]) -> dict[str, int]:
    """Return percentiles that occur; none of nothing."""
    return {
        name: int(np.percentile(tokens, percent, method="inverted_cdf")) if tokens else 0
        for name, percent in _PERCENTILES.items()
    }


def _by_reason(findings: Sequence[Finding]) -> dict[str, dict[str, object]]:
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.reason, []).append(finding)
    return {
        reason: {
            "rows": len(found),
            "examples": [{"id": one.id, "detail": one.detail[:_DETAIL]} for one in found[:_EXAMPLES]],
        }
        for reason, found in grouped.items()
    }


def _examples(examples: object) -> str:
    assert isinstance(examples, list)
    # As code, so that no sign of a question is taken for Markdown.
    return "; ".join(f"{one['id']}: `{one['detail'].replace('`', chr(39))}`" for one in examples)


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: object) -> str:
    """Return a value that can't break the table it stands in."""
    return " ".join(str(value).split()).replace("|", r"\|")
