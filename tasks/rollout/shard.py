"""Prompts to samples: the rollout of a part of a step on one engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from tasks.dataset.store import Prompt
from tasks.rollout.client import EngineClient, Response
from tasks.rollout.samples import Row
from tasks.rollout.seeds import sampling_seed


class StaleWeights(RuntimeError):
    """An engine answered with other weights than it was asked for."""


@dataclass(frozen=True)
class Sampling:
    """How a group is sampled: its size, its longest response in tokens, temperature (0 is greedy), and the seed."""

    samples: int
    max_tokens: int
    temperature: float
    run_seed: int


def roll_out(
    client: EngineClient,
    tokenizer: Tokenizer,
    groups: Sequence[tuple[int, Prompt]],
    step: int,
    version: int,
    sampling: Sampling,
) -> list[Row]:
    """Sample a response group for each prompt.

    Args:
        client: The engine.
        tokenizer: Turns response ids into the text that is scored; ids never come from text.
        groups: Each prompt with its position in the step.
        step: The step, for the seeds.
        version: The weights version that must have produced every token.
        sampling: How to sample.

    Returns:
        One row a sample, group by group, in the order of the prompts.

    Raises:
        StaleWeights: if a response comes from another version.
    """

    places = [(group, index, prompt) for group, prompt in groups for index in range(sampling.samples)]
    seeds = [sampling_seed(sampling.run_seed, step, group, index) for group, index, _ in places]
    prompts = [prompt.ids for _, _, prompt in places]
    responses = client.generate(prompts, seeds, sampling.temperature, sampling.max_tokens)
    stale = {response.weights_version for response in responses} - {version}
    if stale:
        raise StaleWeights(f"step {step} asked for weights {version}; the engine answered with {sorted(stale)}")
    return [
        _row(step, group, index, prompt, seed, response, tokenizer)
        for (group, index, prompt), seed, response in zip(places, seeds, responses, strict=True)
    ]


def _row(step: int, group: int, index: int, prompt: Prompt, seed: int, response: Response, tokenizer: Tokenizer) -> Row:
    # The EOS that ends a response is trained on but is not part of its text.
    said = response.ids[:-1] if response.finish_reason == "stop" else response.ids
    return {
        "step": step,
        "group": group,
        "index": index,
        "prompt_id": prompt.question.id,
        "prompt_ids": prompt.ids,
        "response_ids": response.ids,
        "logprobs": response.logprobs,
        "weights_versions": [response.weights_version] * len(response.ids),
        "finish_reason": response.finish_reason,
        "seed": seed,
        "text": tokenizer.decode(said, skip_special_tokens=False),
        "question": prompt.question.text,
        "source": prompt.question.source,
        "gold": prompt.question.gold,
        "metadata": prompt.question.metadata,
    }
