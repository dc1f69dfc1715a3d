"""What a response is worth."""

from typing import Literal

from pydantic import Field

from configs.section import Section


class Reward(Section):
    """A sample's reward: the weighted sum of its parts."""

    checker: Literal["exact", "numeric", "reasoning_gym"] = Field(
        default="numeric", description="How the extracted answer is compared with the gold answer."
    )
    answer_weight: float = Field(default=1.0, description="Reward of a right answer.")
    format_weight: float = Field(default=0.0, description="Reward of a response in the <think>/<answer> form.")
