"""The scorer: how fast it is, what hanging samples cost, and where it differs from math-verify on its own.

    python -m benchmarks.scoring speed
    python -m benchmarks.scoring agreement

Writes benchmarks/scoring-<what>.json (machine, command, numbers) and .md (a table).
"""

import argparse
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from math_verify import parse, verify

from benchmarks.answer_pairs import FOUND_IN_USE, Pair, generate
from configs.reward import Reward
from tasks.records.question import Question
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer
from tasks.tracking.provenance import provenance

HERE = Path(__file__).parent
PAIRS, PAIRS_FOUND_IN_USE = 5200, 2000
PATHOLOGICAL = [r"\boxed{9^{9^{9^9}}}", r"\boxed{10^{10^{10}}}", r"\boxed{1000000!}"]
LIMIT, WORKERS = 2.0, 2

MIXED = "math-verify alone reads the gold `20 1/4` as a product; here it is a mixed number."
REASONS = {
    "decimals: full stop": "math-verify alone doesn't read `1.50.`; here a full stop at the end doesn't count.",
    "mixed numbers: decimal": MIXED,
    "mixed numbers: improper": MIXED,
    "mixed numbers: LaTeX": MIXED,
    "thousands: spaces": "In LaTeX math-verify multiplies `12 000`; here it is twelve thousand.",
    "powers": "math-verify alone reads neither `8 x 10^6` nor `8·10⁶` nor `8e6`; a person does.",
    "named units": "math-verify alone looks past the units that it knows; here another one than the gold's is wrong.",
    "any units": "math-verify alone knows some units; here all words behind a number are one.",
    "small values": "math-verify alone rounds to 15 decimal places: all small values are one to it.",
    "rounded": "math-verify alone rounds to 6 decimal places; here a decimal must be rounded at its last digit.",
    "unicode terms": "math-verify alone doesn't read `x²` and `√2`.",
    "inequalities": "math-verify alone takes an interval for an inequality, but not the other way round.",
    "unions": "math-verify alone doesn't read inequalities that are joined by `or`.",
    "congruences": "math-verify alone compares congruences as texts, or not at all.",
    "spellings": "math-verify alone reads `sqrt` and `pi` in a gold as letters.",
    "side by side": "math-verify alone joins all boxes to one list, also a wrong one with its correction.",
    "sentences": "math-verify alone takes the formula before the stated answer.",
    "names": "math-verify alone doesn't read words in a sentence.",
}
"""Why the scorer differs from math-verify on its own, by the form of the answer or its family."""


def reason(form: str) -> str:
    """Return why the scorer differs on answers of a form.

    Raises:
        KeyError: nothing is written down about it.
    """
    return REASONS[form if form in REASONS else form.partition(":")[0]]


def all_pairs() -> list[Pair]:
    """Return the pairs of the table: those of the usual kinds, and those of kinds that were read wrongly in use."""
    return [*generate(0, PAIRS), *generate(1, PAIRS_FOUND_IN_USE, FOUND_IN_USE)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "agreement"])
    what = parser.parse_args().what
    measured, table = {"speed": speed, "agreement": agreement}[what]()
    report = {
        "command": f"python -m benchmarks.scoring {what}",
        **provenance(),
        **measured,
    }
    target = HERE / f"scoring-{what}"
    target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    heading = f"# Scoring: {what}\n\n`{report['command']}` on {report['machine']}, commit {report['commit'][:10]}.\n\n"
    target.with_suffix(".md").write_text(heading + table)
    print(target.with_suffix(".md").read_text())


def speed() -> tuple[dict[str, Any], str]:
    plain = plain_samples(20_000)
    ordinary = [sample(rf"\boxed{{x + {i}}}", f"{i} + x") for i in range(1000)]
    hanging = [*ordinary[10:], *(sample(PATHOLOGICAL[i % 3], "42") for i in range(10))]
    random.Random(0).shuffle(hanging)
    with Scorer(Reward.model_validate({"accuracy": "math", "timeout_seconds": LIMIT, "workers": WORKERS})) as scorer:
        start = seconds(scorer, ordinary[:1])
        plain_seconds = seconds(scorer, plain)
        ordinary_seconds = seconds(scorer, ordinary)
        # Both workers are killed and replaced; the first samples of the new ones are slower.
        killing = [*[sample(PATHOLOGICAL[0], "42")] * WORKERS, *ordinary[:40]]
        kills = [seconds(scorer, killing) - LIMIT - ordinary_seconds * 40 / 1000 for _ in range(3)]
        hanging_seconds = seconds(scorer, hanging)
        timeouts = sum(score.status == "timeout" for score in scorer.score(hanging))
    killed = LIMIT + max(kills)
    bound = 10 * killed / WORKERS + ordinary_seconds + killed * (1 - 1 / WORKERS)
    rows = {
        "plain samples a second": len(plain) / plain_seconds,
        "symbolic samples a second": len(ordinary) / ordinary_seconds,
        "first sample, with the start of the processes (s)": start,
        "replacement of a killed worker, with its slower first samples (s)": max(kills),
        "1,000 symbolic samples (s)": ordinary_seconds,
        "1,000 samples, 10 of which never end (s)": hanging_seconds,
        "its bound (tasks/reward/pool.py) (s)": bound,
        "timeouts": timeouts,
    }
    lines = [f"Limit {LIMIT:g} s a sample, {WORKERS} workers, kind `math`.", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value:,.4g} |" for name, value in rows.items()]
    return {"limit_seconds": LIMIT, "workers": WORKERS, "numbers": rows}, "\n".join(lines) + "\n"


def plain_samples(count: int) -> list[Answered]:
    """Responses of GSM8K's kind, 600 characters of working and a number, two of three right."""
    working = "She buys 3 boxes of 12 pencils for $4 each, which makes 3 * 12 = 36 pencils. " * 8
    forms = [r"The answer is \boxed{ANSWER}.", "#### ANSWER", "So she has ANSWER pencils left."]
    rng = random.Random(0)
    samples = []
    for i in range(count):
        gold = rng.randint(1, 20_000)
        given = gold + (i % 3 == 0)
        samples.append(sample(working + rng.choice(forms).replace("ANSWER", f"{given:,}"), str(gold)))
    return samples


def sample(response: str, gold: str) -> Answered:
    return Answered(response, Question("q", "", gold, "benchmark"), "stop", 200)


def seconds(scorer: Scorer, batch: Sequence[Answered]) -> float:
    start = time.perf_counter()
    scorer.score(batch)
    return time.perf_counter() - start


def agreement() -> tuple[dict[str, Any], str]:
    pairs = all_pairs()
    ours, alone = score_pairs(pairs), [ask_math_verify(pair) for pair in pairs]
    different = [
        {"form": p.form, "gold": p.gold, "response": p.response, "equal": p.equal, "scorer": o, "math_verify": a}
        for p, o, a in zip(pairs, ours, alone, strict=True)
        if not o == a == p.equal
    ]
    for row in different:
        row["reason"] = reason(row["form"])
    numbers = {
        "pairs": len(pairs),
        "equal pairs": sum(pair.equal for pair in pairs),
        "scorer right": sum(o == p.equal for o, p in zip(ours, pairs, strict=True)),
        "math-verify alone right": sum(a == p.equal for a, p in zip(alone, pairs, strict=True)),
        "disagreements": sum(o != a for o, a in zip(ours, alone, strict=True)),
    }
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {value:,} |" for name, value in numbers.items()]
    lines += ["", "| form | pairs | equal | scorer | math-verify alone | e.g. gold | and response | reason |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    counts = Counter((r["form"], r["equal"], r["scorer"], r["math_verify"]) for r in different)
    for (form, equal, scorer, math_verify), count in sorted(counts.items()):
        first = next(row for row in different if row["form"] == form and row["scorer"] == scorer)
        cells = [
            form,
            count,
            equal,
            scorer,
            math_verify,
            f"`{first['gold']}`",
            f"`{first['response']}`",
            first["reason"],
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return {"numbers": numbers, "disagreements": different}, "\n".join(lines) + "\n"


def score_pairs(pairs: Sequence[Pair]) -> list[bool]:
    """Whether the scorer finds each response right."""
    with Scorer(Reward.model_validate({"accuracy": "math", "timeout_seconds": 60})) as scorer:
        return [score.status == "right" for score in scorer.score([sample(p.response, p.gold) for p in pairs])]


def ask_math_verify(pair: Pair) -> bool:
    """Whether math-verify finds the response right, called as its documentation does."""
    gold, answer = parse(f"${pair.gold}$", parsing_timeout=0), parse(pair.response, parsing_timeout=0)
    return verify(gold, answer, timeout_seconds=0)


if __name__ == "__main__":
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    main()
