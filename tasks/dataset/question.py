"""The one form that every source of data is brought into."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question with a checkable answer.

    `text` is what the user asks, before any chat template. `gold` is the right answer as text; it is empty where
    only the source's own verifier can tell. `metadata` is JSON: what that verifier needs, else `{}`.
    """

    id: str
    text: str
    gold: str
    source: str
    metadata: str = "{}"
