"""How many samples an engine is asked for: in one request, and at once."""

from math import ceil

from configs.schema import Recipe

TOGETHER = 8
"""Samples that a request has at least: more requests would only take more time."""


def samples_at_once(recipe: Recipe) -> int:
    """Return the most samples that an engine has at once, from the shards that share it or from an evaluation."""
    group = max(recipe.rollout.samples_per_prompt, recipe.evaluation.samples_per_prompt)
    sharing = ceil(recipe.rollout.shards / recipe.engine.count)
    return sharing * recipe.engine.in_flight * max(group, TOGETHER)
