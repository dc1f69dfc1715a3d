"""The learner's input: one sampled response with what is needed to learn from it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One response to one prompt.

    Attributes:
        group: id of the prompt's group; samples with the same id are compared with one another.
        prompt_ids: token ids of the prompt; at least one, because it predicts the first response token.
        response_ids: token ids of the response, its end token included if the engine sampled one.
        behaviour_logprobs: natural log-probability of each response token when it was sampled, at the sampling
            temperature; as long as `response_ids`.
        weights_version: number of updates of the weights that sampled the response.
        reward: scalar reward; None if the response could not be scored, which masks it out of the loss.
        accuracy: how right the answer is, 0 to 1, whatever else is rewarded; None where that is not known.
        truncated: whether the response was cut at the token limit.

    Raises:
        ValueError: if the prompt is empty or the lengths differ.
    """

    group: str
    prompt_ids: list[int]
    response_ids: list[int]
    behaviour_logprobs: list[float]
    weights_version: int
    reward: float | None
    accuracy: float | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError(f"sample of group {self.group!r} has an empty prompt; the first response token needs one")
        if len(self.response_ids) != len(self.behaviour_logprobs):
            raise ValueError(
                f"sample of group {self.group!r} has {len(self.response_ids)} response_ids but "
                f"{len(self.behaviour_logprobs)} behaviour_logprobs; give one log-prob for each response token"
            )
