"""The scorer: samples in, rewards out. Training, evaluation and data preparation score with it."""

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Self

from configs.reward import Http, Part, Reward
from configs.timeouts import Timeouts
from tasks.records.question import Question
from tasks.records.samples import Status
from tasks.reward.kinds import AT_ONCE, KILLABLE
from tasks.reward.outcome import Answered, Outcome, Score
from tasks.reward.pool import Job, WorkerPool
from tasks.reward.remote import ask

ACCURACY = "accuracy"
_NO_IDENTITY = ("regex", "python", "http")

_log = logging.getLogger(__name__)


class Scorer:
    """Scores batches by the rewards of a recipe.

    Samples that a plain function can decide are scored at once, all others in killable processes. These start at the
    first such sample, stay for the next batch, and end with the scorer or its process. Works in threads and Ray
    workers; threads that score at the same time take turns.
    """

    def __init__(
        self,
        reward: Reward,
        by_source: Mapping[str, Reward] = MappingProxyType({}),
        answer: float = Timeouts().answer,
        away: float = 0.0,
    ) -> None:
        """Score by `by_source` the questions of the sources that it names, and all others by `reward`.

        Args:
            reward: Of every question that `by_source` doesn't name.
            by_source: Rewards by source.
            answer: Seconds that a killable process may take to start.
            away: Seconds that a server which is asked for marks may be away.
        """
        self._reward, self._by_source, self._answer, self._away = reward, by_source, answer, away
        rewards = [reward, *by_source.values()]
        parts = [part for each in rewards for part in _parts(each).values() if part.kind in KILLABLE]
        self._killable = [part for index, part in enumerate(parts) if part not in parts[:index]]
        self._pool = WorkerPool(
            self._killable,
            workers=max(each.workers for each in rewards),
            memory_mb=max(each.memory_mb for each in rewards),
            answer=answer,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def accuracy_only(self) -> "Scorer":
        """Return another scorer, of the same accuracies and no further parts."""
        rewards = {source: reward.model_copy(update={"parts": {}}) for source, reward in self._by_source.items()}
        return Scorer(self._reward.model_copy(update={"parts": {}}), rewards, self._answer, self._away)

    def reward_of(self, question: Question) -> Reward:
        """Return the reward that a question's responses get."""
        return self._by_source.get(question.source, self._reward)

    def score(self, batch: Sequence[Answered]) -> list[Score]:
        """Score samples, in order. A bad sample affects no other: it gets a status that says so, and is logged.

        Raises:
            UserError: a part of the recipe that works for no sample: a function that can't be imported, an API key that
                isn't set.
            OSError: the processes can't be started.
        """
        groups: dict[int, list[int]] = defaultdict(list)
        for place, answered in enumerate(batch):
            groups[id(self.reward_of(answered.question))].append(place)
        scores: dict[int, Score] = {}
        for places in groups.values():
            samples = [batch[place] for place in places]
            scores |= zip(places, self._score(samples, self.reward_of(samples[0].question)), strict=True)
        return [scores[place] for place in range(len(batch))]

    def _score(self, batch: Sequence[Answered], reward: Reward) -> list[Score]:
        parts, seconds = _parts(reward), reward.timeout_seconds
        accuracies = self._evaluate(ACCURACY, reward.accuracy, batch, seconds)
        judged = [replace(answered, accuracy=o.value) for answered, o in zip(batch, accuracies, strict=True)]
        further = [self._evaluate(name, part, judged, seconds) for name, part in reward.parts.items()]
        weights = [part.weight for part in parts.values()]
        return [
            _combine(dict(zip(parts, outcomes, strict=True)), weights, answered.cut)
            for answered, *outcomes in zip(batch, accuracies, *further, strict=True)
        ]

    def _evaluate(self, name: str, part: Part, batch: Sequence[Answered], timeout_seconds: float) -> list[Outcome]:
        """Return what a part says of each sample, and log where it failed."""
        if isinstance(part, Http):
            outcomes = ask(part, batch, self._away)
        else:
            found = [_at_once(part, answered) for answered in batch]
            undecided = [answered for answered, outcome in zip(batch, found, strict=True) if outcome is None]
            index = self._killable.index(part) if undecided else 0
            rest = iter(self._pool.run([Job(index, answered, timeout_seconds) for answered in undecided]))
            outcomes = [next(rest) if outcome is None else outcome for outcome in found]
        lowest = 0.0 if name == ACCURACY else -1.0
        outcomes = [_within(outcome, lowest) for outcome in outcomes]
        for answered, outcome in zip(batch, outcomes, strict=True):
            if outcome.reason:
                message = "reward part %s, question %s: %s: %s"
                _log.warning(message, name, answered.question.id, outcome.failure, outcome.reason)
        return outcomes


def gold_statuses(scorer: Scorer, questions: Sequence[Question]) -> list[Status]:
    """Return the status that each question's gold gets as an answer. If it isn't right, no response can be.

    If a pattern, a function or a server decides, the gold may be no valid answer: these questions count as right.
    """
    known = [question for question in questions if scorer.reward_of(question).accuracy.kind not in _NO_IDENTITY]
    with scorer.accuracy_only() as plain:
        scores = plain.score([Answered(f"<answer>{question.gold}</answer>", question, "stop", 0) for question in known])
    found: dict[str, Status] = {question.id: score.status for question, score in zip(known, scores, strict=True)}
    right: Status = "right"
    return [found.get(question.id, right) for question in questions]


def _parts(reward: Reward) -> dict[str, Part]:
    return {ACCURACY: reward.accuracy, **reward.parts}


def _at_once(part: Part, answered: Answered) -> Outcome | None:
    if part.kind not in AT_ONCE:
        return None
    try:
        return AT_ONCE[part.kind](part, answered)
    except Exception as error:
        return Outcome(None, "error", f"{type(error).__name__}: {error}")


def _within(outcome: Outcome, lowest: float) -> Outcome:
    """Turn a value out of its range [lowest, 1] into an error."""
    if outcome.value is None or lowest <= outcome.value <= 1.0:
        return outcome
    return Outcome(None, "error", f"its value {outcome.value} is not from {lowest:g} to 1")


def _combine(outcomes: Mapping[str, Outcome], weights: Sequence[float], cut: bool) -> Score:
    values = {name: 0.0 if o.failure == "timeout" else o.value for name, o in outcomes.items()}
    failures = {outcome.failure for outcome in outcomes.values()}
    for status in ("error", "unscorable"):
        if status in failures:
            return Score(None, values, status)
    reward = math.fsum(weight * (value or 0.0) for weight, value in zip(weights, values.values(), strict=True))
    if "timeout" in failures:
        return Score(reward, values, "timeout")
    right = values[ACCURACY] == 1.0
    return Score(reward, values, "right" if right else "truncated" if cut else "wrong")
