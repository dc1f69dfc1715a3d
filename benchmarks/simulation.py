"""Hundreds of engines on one machine: `python -m benchmarks.simulation`.

The engines are simulated: they only wait, as long as a response of their length would take. What hands out requests,
aborts, carries over, builds the samples and scores them is the project's own code. Lengths are log-normal: a few
responses are ten times as long as most. Compared are three ways to hand out a step's groups:

- split: each engine gets its share when the step begins;
- least loaded: an engine takes the next group when it has room (`Fleet`);
- over-sampling: the same, with 1.25 times the groups; the step goes on when enough are finished.

Writes benchmarks/simulation.json, .md and .png.
"""

import argparse
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import psutil
from rich.progress import Progress
from tokenizers import Tokenizer

from configs.schema import Recipe
from tasks.records.question import Prompt, Question
from tasks.records.samples import SampleRow
from tasks.reward.task import score_rows
from tasks.rollout.carry import split_finished, take_up
from tasks.rollout.fleet import Fleet
from tasks.rollout.shard import Sampling, roll_out
from tasks.server.client import EngineClient, Response
from tasks.tracking.provenance import provenance
from trainer.model.tiny_policy import build_tokenizer

OUT = Path(__file__).with_suffix(".json")
STEPS = 3
GROUPS_PER_ENGINE = 4
SAMPLES = 8
IN_FLIGHT = 1  # Groups that an engine works on at once.
OVER_SAMPLING = 1.25
LONGEST = 256  # Tokens; each stands for 32 of a real response.
SECONDS_PER_TOKEN = 0.05
TOKENIZER = build_tokenizer()
ANSWER = TOKENIZER.encode("<answer>7</answer>")
POLICIES = ("split", "least loaded", "over-sampling")


@dataclass(frozen=True)
class Measured:
    """What a policy did on so many engines.

    Attributes:
        idle_share: Of the time of all places for a sample in all engines, what was not spent generating one.
        seconds_a_step: From the first request of a step to its last sample that is waited for.
        dispatch_milliseconds: CPU time of this process a sample: requests, rows and files' form, without scoring.
        score_milliseconds: The same for scoring, in wall time on this machine.
        memory_mib: Resident memory of this process after each step.
    """

    engines: int
    policy: str
    samples: int
    idle_share: float
    seconds_a_step: float
    dispatch_milliseconds: float
    score_milliseconds: float
    memory_mib: list[float]


class SimulatedEngine:
    """Takes as long for a response as it is long, and remembers how long it was at work."""

    def __init__(self) -> None:
        self.busy = 0.0  # seconds of samples
        self._aborted: dict[str, threading.Event] = {}

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        temperature: float,
        max_tokens: Sequence[int],
        ids: Sequence[str],
    ) -> list[Response]:
        """Wait for the longest response, or until the request is aborted."""
        del prompts, temperature
        # A sample that was begun before has that much less to go.
        left = [max(1, length_of(seed) - (LONGEST - room)) for seed, room in zip(seeds, max_tokens, strict=True)]
        event = self._aborted.setdefault(ids[0], threading.Event())
        began = time.monotonic()
        event.wait(max(left) * SECONDS_PER_TOKEN)
        generated = int((time.monotonic() - began) / SECONDS_PER_TOKEN)
        self.busy += sum(min(length, max(generated, 1)) for length in left) * SECONDS_PER_TOKEN
        return [_response(length, length if not event.is_set() else min(length, generated)) for length in left]

    def abort(self, name: str) -> None:
        """End a request, by the name of its first sample."""
        if name in self._aborted:
            self._aborted[name].set()

    def close(self) -> None:
        """Nothing is open."""


def length_of(seed: int) -> int:
    """Return a response's length in tokens: log-normal, median 24, at most `LONGEST`."""
    return min(LONGEST, max(len(ANSWER) + 1, round(random.Random(seed).lognormvariate(3.2, 0.8))))


def _response(length: int, generated: int) -> Response:
    whole = [*[ANSWER[0]] * (length - len(ANSWER) - 1), *ANSWER, TOKENIZER.eos_token_id]
    ids = whole[-length:][:generated]
    return Response(ids, [-0.5] * len(ids), "stop" if generated >= length else "abort", 0)


def measure(count: int, policy: str, advance: Callable[[], None]) -> Measured:
    """Run some steps of a policy on so many engines."""
    groups = count * GROUPS_PER_ENGINE
    over = OVER_SAMPLING if policy == "over-sampling" else 1.0
    recipe = Recipe.model_validate(
        {
            "name": "simulation",
            "model": {"context_length": 2 * LONGEST},
            "rollout": {"prompts_per_step": groups, "max_response_tokens": LONGEST, "over_sampling": over},
            "reward": {"accuracy": "numeric"},
            "data": {"train_size": 10 * groups},
        }
    )
    sampling = Sampling(SAMPLES, LONGEST, 1.0, recipe.seed)
    tokenizer = cast(Tokenizer, TOKENIZER.backend_tokenizer)  # pyright: ignore[reportAttributeAccessIssue]
    engines = [SimulatedEngine() for _ in range(count)]
    connects = [lambda engine=engine: cast(EngineClient, engine) for engine in engines]
    carried: list[SampleRow] = []
    wall = dispatch = scoring = 0.0
    memory: list[float] = []
    for step in range(1, STEPS + 1):
        prompt = Prompt(Question("p", "3+4=?", "7", "simulation"), TOKENIZER.encode("3+4=?"))
        places = [(number, prompt) for number in range(recipe.rollout.groups_begun)]
        began, cpu = time.monotonic(), time.process_time()
        rows = take_up(carried, places, step, sampling)
        if policy == "split":
            rows = _split(connects, rows, tokenizer, sampling)
        else:
            wanted = groups if over > 1 else None
            rows = roll_out(Fleet(connects, IN_FLIGHT), tokenizer, rows, 0, sampling, wanted)
        taken, carried = split_finished(rows, groups)
        wall += time.monotonic() - began
        dispatch += time.process_time() - cpu
        began = time.monotonic()
        score_rows(taken, recipe)
        scoring += time.monotonic() - began
        memory.append(round(psutil.Process().memory_info().rss / 2**20, 1))
        advance()
    samples = STEPS * groups * SAMPLES
    places = count * IN_FLIGHT * SAMPLES
    return Measured(
        count,
        policy,
        samples,
        1 - sum(engine.busy for engine in engines) / (places * wall),
        wall / STEPS,
        1000 * dispatch / samples,
        1000 * scoring / samples,
        memory,
    )


def _split(
    connects: Sequence[Callable[[], EngineClient]], rows: list[SampleRow], tokenizer: Tokenizer, sampling: Sampling
) -> list[SampleRow]:
    """Give each engine its share at once: what a step without `Fleet` would do."""
    share = GROUPS_PER_ENGINE * SAMPLES
    done: dict[int, list[SampleRow]] = {}

    def work(number: int) -> None:
        own = rows[number * share : (number + 1) * share]
        done[number] = roll_out(Fleet([connects[number]], IN_FLIGHT), tokenizer, own, 0, sampling)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(connects))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [row for number in range(len(connects)) for row in done[number]]


def report(results: Sequence[Measured]) -> str:
    """Return the results as a table."""
    lines = [
        "# Many engines, simulated",
        "",
        f"{STEPS} steps of {GROUPS_PER_ENGINE} groups of {SAMPLES} samples an engine, {IN_FLIGHT} at once. Lengths are",
        f"log-normal, median 24 tokens, at most {LONGEST}; a token takes {1000 * SECONDS_PER_TOKEN:.0f} ms. Only the",
        "engines are simulated. Idle is a place for a sample, of all engines, that generates nothing.",
        "`python -m benchmarks.simulation` makes this table.",
        "",
        "| engines | groups are handed out | idle share | seconds a step | CPU a sample, ms | scoring a sample, ms | "
        "memory after each step, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        memory = " ".join(f"{size:.0f}" for size in one.memory_mib)
        lines.append(
            f"| {one.engines} | {one.policy} | {one.idle_share:.0%} | {one.seconds_a_step:.1f} | "
            f"{one.dispatch_milliseconds:.2f} | {one.score_milliseconds:.2f} | {memory} |"
        )
    return "\n".join(lines) + "\n"


def draw(results: Sequence[Measured]) -> Any:
    """Draw the idle share of each policy over the number of engines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for policy in POLICIES:
        own = [one for one in results if one.policy == policy]
        axes.plot([one.engines for one in own], [100 * one.idle_share for one in own], marker="o", label=policy)
    counts = sorted({one.engines for one in results})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("engines")
    axes.set_ylabel("idle share, %")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.set_title("Places of engines that generate nothing, by how groups are handed out")
    return figure


def main() -> None:
    """Measure all policies on all numbers of engines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, nargs="+", default=[64, 256, 1024])
    arguments = parser.parse_args()
    results: list[Measured] = []
    with Progress() as bar:
        task = bar.add_task("", total=len(arguments.engines) * len(POLICIES) * STEPS)
        for count in arguments.engines:
            for policy in POLICIES:
                bar.update(task, description=f"{count} engines, {policy}")
                results.append(measure(count, policy, lambda: bar.advance(task)))
    OUT.write_text(json.dumps({**provenance(), "results": [asdict(one) for one in results]}, indent=1) + "\n")
    OUT.with_suffix(".md").write_text(report(results))
    draw(results).savefig(OUT.with_suffix(".png"), dpi=110)
    print(report(results))


if __name__ == "__main__":
    main()
