"""Questions in the one form that every source is brought into, prompts, and what is told of what is left out."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question with a checkable answer.

    `text` is what the user asks, before any chat template. `gold` is the right answer as text; it is empty where
    only the source's own verifier can tell. `source` is the label of the source in the recipe. `metadata` is JSON: what
    a verifier needs, else `{}`. `earlier` is JSON: the messages before the user's, each with `role` and `content`.
    """

    id: str
    text: str
    gold: str
    source: str
    metadata: str = "{}"
    earlier: str = "[]"

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation up to where the assistant answers."""
        return [*json.loads(self.earlier), {"role": "user", "content": self.text}]


@dataclass(frozen=True)
class Prompt:
    """A question and the token ids that it is asked with, up to where the response begins.

    `opened` is the tag that they leave open, such as `<think>`, so that the response goes on inside it; mostly empty.
    """

    question: Question
    ids: list[int]
    opened: str = ""


@dataclass(frozen=True)
class Finding:
    """A row or question that was left out, or that deserves a look: why, which one, and what there is to see.

    `id` names it by file and line (or row), `sums.jsonl:7`; `source` is the label of its source.
    """

    reason: str
    source: str
    id: str
    detail: str

    @classmethod
    def of(cls, question: Question, reason: str, detail: str = "") -> "Finding":
        """Return a finding about a question; the detail is its text unless there is more to say."""
        return cls(reason, question.source, question.id, detail or question.text)
