"""Demonstrations for the cold start, some of them wrong, so that reinforcement learning is left something to do."""

import itertools
import random
from typing import TYPE_CHECKING

from configs.errors import UserError
from configs.schema import Recipe
from tasks.dataset import arithmetic
from tasks.dataset.prompt_order import prompts_of_step
from tasks.dataset.prompts import encode_responses
from tasks.dataset.store import Demonstration
from tasks.records.question import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def demonstrate(recipe: Recipe, prompts: list[Prompt], tokenizer: "PreTrainedTokenizerBase") -> list[Demonstration]:
    """Make as many demonstrations as the cold start takes, so that none is seen twice; none without a cold start.

    The prompts come in turn, epoch by epoch, and each demonstration is drawn anew: wrong with the probability
    `cold_start.wrong_share`. All draws derive from `data.seed`.

    Raises:
        UserError: a demonstration is longer than `rollout.max_response_tokens`, so that the policy would learn
            responses which are always cut.
    """
    if recipe.cold_start is None:
        return []
    working = arithmetic.parse_settings(recipe.data.mixture[0].settings).working
    rng = random.Random(recipe.data.seed)
    count = recipe.cold_start.steps * recipe.cold_start.batch_size
    epochs = (prompts_of_step(recipe.data.seed, epoch, len(prompts), len(prompts)) for epoch in itertools.count())
    chosen = [prompts[index] for index in itertools.islice(itertools.chain.from_iterable(epochs), count)]
    texts = [
        arithmetic.demonstration(prompt.question, rng.random() < recipe.cold_start.wrong_share, rng, working)
        for prompt in chosen
    ]
    responses = encode_responses(tokenizer, texts)
    longest, limit = max(map(len, responses)), recipe.rollout.max_response_tokens
    if longest > limit:
        raise UserError(f"rollout.max_response_tokens is {limit}, but demonstrations take up to {longest}")
    return [(prompt.ids, response) for prompt, response in zip(chosen, responses, strict=True)]
