"""What goes into scoring and what comes out."""

from dataclasses import dataclass
from typing import Literal

from tasks.records.question import Question
from tasks.records.samples import Status


@dataclass(frozen=True)
class Answered:
    """A question and one response to it.

    Attributes:
        text: The response alone, decoded from its ids, with its tags and without the end-of-sequence token; never the
            prompt. Prompts may be lists of messages, responses are not.
        question: What it answers.
        finish_reason: The engine's; `length` is a response cut at the limit.
        response_tokens: Length of the response in tokens.
        accuracy: Its raw accuracy, 0 to 1, once that is known: the reward's other parts may use it.
        opened: The tag that the prompt leaves open, such as `<think>`; empty for none. See `tasks.records.thinking`.
    """

    text: str
    question: Question
    finish_reason: str
    response_tokens: int
    accuracy: float | None = None
    opened: str = ""

    @property
    def said(self) -> str:
        """The text as if the response had opened the tag itself."""
        return self.opened + self.text

    @property
    def cut(self) -> bool:
        """Whether it ended at the length limit."""
        return self.finish_reason == "length"


@dataclass(frozen=True)
class Outcome:
    """What a part of the reward says of a sample: its value, or why there is none.

    The failures: `unscorable`, the question can't be checked whatever the response; `timeout`, the sample took more
    time or memory than it may; `error`, anything else, told by `reason`.
    """

    value: float | None
    failure: Literal["unscorable", "timeout", "error"] | None = None
    reason: str = ""

    @classmethod
    def of(cls, value: float | None) -> "Outcome":
        """What a part's function returned: None is a question that can't be checked."""
        return cls(None, "unscorable") if value is None else cls(float(value))


@dataclass(frozen=True)
class Score:
    """A sample's reward.

    Attributes:
        reward: Weighted sum of the parts; None where there is none: such a sample takes no part in means or updates.
        parts: Raw value of each part by name, `accuracy` and the recipe's own; None where the part failed.
        status: `right` or `wrong`; `truncated` is cut before a right answer; `unscorable` is a question that can't be
            checked; `timeout` is a sample that used up a part's time or memory, which counts as 0 for that part;
            `error` is a part that failed otherwise. There is no reward with the statuses unscorable and error, and no
            verdict with these and timeout: see `tasks.records.samples.is_right`.
    """

    reward: float | None
    parts: dict[str, float | None]
    status: Status
