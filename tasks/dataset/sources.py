"""From the recipe's data section to training and evaluation questions."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from configs.data import GYM, Data, Source, WeightedSource
from configs.errors import UserError
from tasks.dataset import arithmetic
from tasks.dataset.contamination import drop_contaminated
from tasks.dataset.duplicates import drop_near_repeated, drop_repeated
from tasks.dataset.table import read_questions
from tasks.records.question import Finding, Question

# Drawing from a small set of possible questions repeats them; this many draws for each one wanted find nearly all.
_DRAWS_PER_QUESTION = 10

# Far enough for the streams of reasoning-gym, whose item number i has the seed + i.
_EVAL_SEED = 1_000_000_000


@dataclass(frozen=True)
class Candidates:
    """What a source gave: different questions in the order in which they are taken, and what was left out."""

    source: Source
    questions: list[Question]
    dropped: list[Finding]


@dataclass(frozen=True)
class Questions:
    """Training and evaluation questions, what was left out and why, and the rows that each source had."""

    train: list[Question]
    eval: list[Question]
    dropped: list[Finding]
    rows: dict[str, int]


def check_sources(data: Data) -> None:
    """Read or generate the questions, and refuse a source that has too few even if all of them are different.

    Preparation then compares them with one another, which takes its time; see `choose_questions`.

    Raises:
        UserError: a source can't be read, or has too few questions.
    """
    pools, own_eval = read_sources(data)
    _require_sizes(data, pools, own_eval, [len(pool.questions) for pool in pools])


def read_sources(data: Data) -> tuple[list[Candidates], Candidates | None]:
    """Read or generate every training source, and the evaluation questions' own source if there is one.

    A table is read whole (or `rows` of it) and shuffled by `data.seed`. Of a generated source as many questions are
    drawn as may be needed, from one stream, since streams of neighbouring seeds may overlap (reasoning-gym derives the
    seed of an item as seed + index).

    Raises:
        UserError: a source can't be read.
    """
    pools = [
        _read(source, data.seed, None if train is None else train + held_out)
        for source, train, held_out in zip(data.mixture, *_quotas(data), strict=True)
    ]
    return pools, _read(data.eval, data.seed + _EVAL_SEED, data.eval_size) if data.eval else None


def choose_questions(data: Data, pools: Sequence[Candidates], own_eval: Candidates | None) -> Questions:
    """Choose `data.train_size` and `data.eval_size` questions, all different, each source in proportion to its weight.

    A question that repeats an earlier one, apart from case and spaces, is dropped. Evaluation questions are chosen
    first: they stay the same when `train_size` changes, and training questions that give one of them away are dropped.
    Only questions of tables are compared by their words (`data.near_duplicates`, `data.contamination_words`): those of
    a generated source are alike by nature.

    Raises:
        UserError: a source has fewer different questions than are asked of it.
    """
    everything = [*pools, own_eval] if own_eval else list(pools)
    dropped = [finding for pool in everything for finding in pool.dropped]
    different, found = _different([question for pool in pools for question in pool.questions], data)
    dropped += found
    left = [[question for question in different if question.source == pool.source.label] for pool in pools]

    training, held_out = _quotas(data)
    held = [questions[:count] for questions, count in zip(left, held_out, strict=True)]
    chosen = own_eval.questions[: data.eval_size] if own_eval else [question for each in held for question in each]
    for place, pool in enumerate(pools):
        size = None if pool.source.generated else data.contamination_words
        left[place], found = drop_contaminated(left[place][held_out[place] :], chosen, size)
        dropped += found

    _require_sizes(data, pools, own_eval, [len(left[place]) + len(held[place]) for place in range(len(pools))])
    if data.train_size is None:
        training = _largest_mixture([len(questions) for questions in left], data.mixture)
    return Questions(
        train=[question for questions, count in zip(left, training, strict=True) for question in questions[:count]],
        eval=chosen,
        dropped=dropped,
        rows={pool.source.label: len(pool.questions) + len(pool.dropped) for pool in everything},
    )


def _read(source: Source, seed: int, wanted: int | None) -> Candidates:
    if source.source == "arithmetic":
        return Candidates(source, arithmetic.questions(source.settings, seed, source.label), [])
    if source.source.startswith(GYM):
        # Importing its hundred tasks takes a second that other sources needn't pay.
        from tasks.dataset import gym

        assert wanted is not None  # The recipe was checked.
        task, draws = source.source.removeprefix(GYM), wanted * _DRAWS_PER_QUESTION
        stream = gym.generate_questions(task, source.settings, seed, draws, source.name)
        return Candidates(source, *drop_repeated(stream, wanted))
    found, refused = read_questions(source, seed)
    questions, repeated = drop_repeated(found)
    random.Random(seed).shuffle(questions)
    return Candidates(source, questions, refused + repeated)


def _different(questions: list[Question], data: Data) -> tuple[list[Question], list[Finding]]:
    """Drop repeated questions over all sources, and near duplicates over all tables."""
    kept, dropped = drop_repeated(questions)
    if data.near_duplicates:
        generated = {source.label for source in data.mixture if source.generated}
        tables = [question for question in kept if question.source not in generated]
        different, near = drop_near_repeated(tables, data.near_duplicates)
        kept = [question for question in kept if question.source in generated] + different
        dropped += near
    return kept, dropped


def _quotas(data: Data) -> tuple[Sequence[int | None], list[int]]:
    """Return how many training (None: all there are) and held-out questions each source has to give."""
    weights = [source.weight for source in data.mixture]
    training = [None] * len(weights) if data.train_size is None else apportion(data.train_size, weights)
    return training, [0] * len(weights) if data.eval else apportion(data.eval_size or 0, weights)


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Split a total in proportion to weights, by largest remainder; the first of equal remainders gets more."""
    exact = [total * weight / sum(weights) for weight in weights]
    parts = [int(share) for share in exact]
    order = sorted(range(len(parts)), key=lambda place: parts[place] - exact[place])
    for place in order[: total - sum(parts)]:
        parts[place] += 1
    return parts


def _largest_mixture(counts: list[int], sources: Sequence[WeightedSource]) -> list[int]:
    """Return how many questions to take of each source so that one of them is used up and the weights hold."""
    scale = min(count / source.weight for count, source in zip(counts, sources, strict=True))
    return [min(count, round(scale * source.weight)) for count, source in zip(counts, sources, strict=True)]


def _require_sizes(
    data: Data, pools: Sequence[Candidates], own_eval: Candidates | None, available: Sequence[int]
) -> None:
    """Refuse sources with fewer questions than the recipe asks of them; `available` is of each training source."""
    if own_eval:
        _require(own_eval.source, len(own_eval.questions), {"data.eval_size": data.eval_size or 1})
    for pool, count, training, held_out in zip(pools, available, *_quotas(data), strict=True):
        _require(pool.source, count, {"data.train_size": training or 1, "data.eval_size": held_out})


def _require(source: Source, available: int, needs: dict[str, int]) -> None:
    needed = sum(needs.values())
    if available < needed:
        sizes = " + ".join(f"{setting} ({size})" for setting, size in needs.items() if size)
        raise UserError(
            f"{source.label}: {available} different questions, but {sizes} need {needed}. Lower them, or give a larger "
            "source"
        )


def count_reasons(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the number of findings by reason."""
    return dict(Counter(finding.reason for finding in findings))
