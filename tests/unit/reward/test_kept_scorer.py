"""A worker process keeps its scorer, whose processes take seconds to start, from one shard to the next."""

import pytest

from configs.loader import load_recipe
from tasks.reward.scorer import Scorer
from tasks.reward.task import kept_scorer


def test_shards_of_the_same_rewards_share_a_scorer_and_others_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(Scorer, "close", lambda self: closed.append(self))
    first = kept_scorer(load_recipe("r1"))

    assert kept_scorer(load_recipe("r1", ["seed=3", "steps=7"])) is first
    assert closed == []

    second = kept_scorer(load_recipe("r1", ["reward.accuracy=math"]))

    assert second is not first
    assert closed == [first]
