"""Prompts to samples: the rollout of a part of a step."""

import logging
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

from tokenizers import Tokenizer

from tasks.cluster.limits import LEAST_SAMPLES
from tasks.records.question import Prompt
from tasks.records.samples import GIVEN_UP, UNFINISHED, SampleRow
from tasks.rollout.fleet import Answers, Fleet, Request
from tasks.server.client import Response

logger = logging.getLogger(__name__)
NO_TOKENS: SampleRow = {"response_ids": [], "logprobs": [], "weights_versions": []}


class StaleWeights(RuntimeError):
    """An engine answered with other weights than it was asked for."""


@dataclass(frozen=True)
class Sampling:
    """How a group is sampled: its size, its longest response in tokens, temperature (0 is greedy), and the seed.

    `stop`: texts that end a response.
    """

    samples: int
    max_tokens: int
    temperature: float
    run_seed: int
    stop: tuple[str, ...] = ()


def begin(groups: Sequence[tuple[int, Prompt]], step: int, sampling: Sampling) -> list[SampleRow]:
    """Return the samples of some prompts, still without tokens, group by group.

    Args:
        groups: Each prompt with its group's number in the step.
        step: The step, for the seeds.
        sampling: How to sample.
    """
    return [
        {
            "step": step,
            "group": group,
            "index": index,
            "prompt_id": prompt.question.id,
            "prompt_ids": prompt.ids,
            **NO_TOKENS,
            "finish_reason": UNFINISHED,
            "seed": sampling_seed(sampling.run_seed, step, group, index),
            "text": "",
            "question": prompt.question.text,
            "source": prompt.question.source,
            "gold": prompt.question.gold,
            "metadata": prompt.question.metadata,
            "opened": prompt.opened,
        }
        for group, prompt in groups
        for index in range(sampling.samples)
    ]


def roll_out(
    fleet: Fleet,
    tokenizer: Tokenizer,
    rows: Sequence[SampleRow],
    version: int,
    sampling: Sampling,
    wanted: int | None = None,
    vocabulary: Container[int] | None = None,
    salvage: Callable[[list[SampleRow]], None] | None = None,
) -> list[SampleRow]:
    """Generate the rest of the unfinished samples.

    A sample whose response can't be used, however often it is made, is given up: it keeps no token.

    Args:
        fleet: The engines.
        tokenizer: Turns response ids into the text that is scored; ids never come from text.
        rows: Samples, group by group.
        version: The weights version that must produce every new token.
        sampling: How to sample.
        wanted: Number of finished groups after which generation stops. None finishes all.
        vocabulary: The model's token ids, where they are known.
        salvage: Takes the samples as far as they are, before an error is raised.

    Returns:
        The samples, in their order. One that was given up says why in `flaw`, which is not stored.

    Raises:
        StaleWeights: if a response comes from another version.
    """
    requests = [
        unfinished for part in _parts(rows, 1 if wanted else LEAST_SAMPLES) if (unfinished := _unfinished(part))
    ]

    def grown(answers: Answers) -> list[SampleRow]:
        found = {
            (row["group"], row["index"]): _grown(row, response, version, tokenizer, sampling)
            for part, responses in zip(requests, answers, strict=True)
            for row, response in zip(part, responses, strict=False)  # what no engine had begun has no responses
        }
        return [found.get((row["group"], row["index"]), row) for row in rows]

    answers = fleet.generate(
        [_request(part, sampling.max_tokens) for part in requests],
        sampling.temperature,
        wanted=max(wanted - len(finished_groups(rows)), 0) if wanted else len(requests),
        vocabulary=vocabulary,
        salvage=(lambda answers: salvage(grown(answers))) if salvage else None,
    )
    return grown(answers)


def finished_groups(rows: Sequence[SampleRow]) -> list[int]:
    """Return the numbers of the groups that have all their samples, in their order."""
    by_group = groupby(rows, key=lambda row: row["group"])
    return [group for group, samples in by_group if not _unfinished(list(samples))]


def _parts(rows: Sequence[SampleRow], least: int) -> Iterator[list[SampleRow]]:
    """Cut samples into parts of whole groups, each of at least `least` samples except the last."""
    part: list[SampleRow] = []
    for _, samples in groupby(rows, key=lambda row: row["group"]):
        part += samples
        if len(part) >= least:
            yield part
            part = []
    if part:
        yield part


def _unfinished(rows: Sequence[SampleRow]) -> list[SampleRow]:
    return [row for row in rows if row["finish_reason"] == UNFINISHED]


def _request(rows: Sequence[SampleRow], max_tokens: int) -> Request:
    return Request(
        prompts=[[*row["prompt_ids"], *row["response_ids"]] for row in rows],
        seeds=[row["seed"] for row in rows],
        max_tokens=[max_tokens - len(row["response_ids"]) for row in rows],
    )


def _grown(row: SampleRow, response: Response, version: int, tokenizer: Tokenizer, sampling: Sampling) -> SampleRow:
    if response.flaw:
        logger.error("group %d, sample %d is given up: %s", row["group"], row["index"], response.flaw)
        return {**row, **NO_TOKENS, "finish_reason": GIVEN_UP, "flaw": response.flaw, "text": ""}
    if not response.ids and response.finish_reason == UNFINISHED:
        return row
    if response.weights_version != version:
        raise StaleWeights(f"asked for weights {version}; the engine answered with {response.weights_version}")
    ids = [*row["response_ids"], *response.ids]
    at_limit = response.finish_reason == UNFINISHED and len(ids) >= sampling.max_tokens
    # What ends a response is trained on but is not part of its text.
    at_eos = response.finish_reason == "stop" and not response.at_text
    text = tokenizer.decode(ids[:-1] if at_eos else ids, skip_special_tokens=False)
    grown = {
        **row,
        "response_ids": ids,
        "logprobs": [*row["logprobs"], *response.logprobs],
        "weights_versions": [*row["weights_versions"], *[response.weights_version] * len(response.ids)],
        "finish_reason": "length" if at_limit else response.finish_reason,
        "text": text,
    }
    return _cut_at_stop(grown, tokenizer, sampling.stop) if any(stop in text for stop in sampling.stop) else grown


def _cut_at_stop(row: SampleRow, tokenizer: Tokenizer, stop: Sequence[str]) -> SampleRow:
    """End a response with the token that completes the first stop, and its text before that.

    An engine looks at the last tokens only, as many as it would take itself to write a stop: it misses one that the
    model wrote in smaller pieces, or that began before the response was interrupted.
    """

    def text(tokens: int) -> str:
        return tokenizer.decode(row["response_ids"][:tokens], skip_special_tokens=False)

    def stops(tokens: int) -> bool:
        return any(one in text(tokens) for one in stop)

    tokens = bisect_left(range(len(row["response_ids"])), True, key=stops)
    said = text(tokens)
    return {
        **row,
        **{name: row[name][:tokens] for name in NO_TOKENS},
        "finish_reason": "stop",
        "text": said[: min(said.find(one) for one in stop if one in said)],
    }


def sampling_seed(run_seed: int, step: int, group: int, index: int) -> int:
    """Derive a sample's seed from the run's seed, the step, the group and the sample's index.

    Returns:
        An integer in [0, 2**31), the range that SGLang takes. Different samples have different seeds, except for
        collisions of a 31-bit hash.
    """
    digest = blake2b(f"{run_seed}/{step}/{group}/{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
