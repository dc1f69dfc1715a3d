"""Questions and samples made short, and scorers whose processes end with the module that uses them."""

from collections.abc import Callable, Iterator

import pytest

from configs.reward import Reward
from tasks.records.question import Question
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer

Answer = Callable[..., Answered]
MakeScorer = Callable[..., Scorer]


@pytest.fixture(scope="session")
def answer() -> Answer:
    def make(
        gold: str,
        text: str,
        *,
        id: str = "q",
        finish_reason: str = "stop",
        tokens: int = 1,
        opened: str = "",
        **more: str,
    ) -> Answered:
        question = Question(id=id, text="", gold=gold, source="test", **more)
        return Answered(text, question, finish_reason, tokens, opened=opened)

    return make


@pytest.fixture(scope="module")
def make_scorer() -> Iterator[MakeScorer]:
    """Scorers by the settings of their reward; the same settings give the same scorer."""
    made: dict[str, Scorer] = {}

    def make(**settings: object) -> Scorer:
        reward = Reward.model_validate(settings)
        return made.setdefault(reward.model_dump_json(), Scorer(reward))

    yield make
    for scorer in made.values():
        scorer.close()
