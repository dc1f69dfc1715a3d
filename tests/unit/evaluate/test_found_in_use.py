"""What can't be scored never counts as wrong: it is counted beside the accuracy (U08, H10)."""

from pathlib import Path

import pytest
from scipy.stats import binomtest

from configs.loader import load_recipe
from tasks.evaluate.statistics import outcomes_of, paired_difference, with_interval
from tasks.evaluate.task import _note_without_score, accuracy_metrics
from tasks.records.samples import STATUSES
from tasks.run.events import read_events
from tasks.run.ledger import create_run

NAME = "eval/heldout/greedy_accuracy"


def answers(*statuses: str, questions: int | None = None) -> list[dict[str, str]]:
    """Scored answers, one a question, or dealt to a number of questions."""
    return [{"prompt_id": f"q{i % (questions or len(statuses))}", "status": s} for i, s in enumerate(statuses)]


def test_u08_an_accuracy_is_over_the_answers_that_could_be_scored():
    metrics = accuracy_metrics(NAME, answers("right", "wrong", "unscorable", "truncated"))

    assert metrics[NAME] == pytest.approx(1 / 3)
    wilson = binomtest(1, 3).proportion_ci(0.95, method="wilson")
    assert (metrics[f"{NAME}_low"], metrics[f"{NAME}_high"]) == pytest.approx((wilson.low, wilson.high))
    assert metrics[f"{NAME}_scored"] == 0.75


@pytest.mark.parametrize("lost", ["error", "timeout", "unscorable"])
def test_u08_what_was_lost_changes_neither_accuracy_nor_interval(lost: str):
    scored = ("right", "wrong", "right", "truncated")

    whole, part = (accuracy_metrics(NAME, answers(*scored, *more)) for more in ((), (lost,) * 96))

    numbers = (NAME, f"{NAME}_low", f"{NAME}_high")
    assert [part[name] for name in numbers] == [whole[name] for name in numbers]
    assert part[f"{NAME}_scored"] == 0.04


def test_u08_the_answers_of_every_status_are_counted_beside_it():
    metrics = accuracy_metrics(NAME, answers("right", "right", "timeout", "error", "error"))

    assert {status: metrics[f"eval/heldout/greedy_status/{status}"] for status in STATUSES} == {
        "right": 2, "wrong": 0, "truncated": 0, "unscorable": 0, "timeout": 1, "error": 2,
    }  # fmt: skip


def test_u08_a_question_counts_once_by_the_samples_that_could_be_scored():
    # q0: right, error; q1: wrong, right.
    metrics = accuracy_metrics(NAME, answers("right", "wrong", "error", "right", questions=2))

    assert metrics[NAME] == 0.75


@pytest.mark.parametrize("statuses", [("error",) * 3, ("timeout", "unscorable"), ("unscorable",)])
def test_u08_without_a_verdict_there_is_no_accuracy_and_that_is_said(tmp_path: Path, statuses: tuple[str, ...]):
    metrics = accuracy_metrics(NAME, answers(*statuses))
    run = create_run(tmp_path, load_recipe("r1"))

    _note_without_score(run, 20, NAME, metrics)

    assert not [name for name in metrics if name in (NAME, f"{NAME}_low", f"{NAME}_high")]
    assert metrics[f"{NAME}_scored"] == 0.0
    assert with_interval(metrics, NAME) == "no answer could be scored"
    (event,) = read_events(run.events)
    assert (event["event"], event["version"]) == ("evaluation without score", 20)
    assert all(f"{statuses.count(status)} {status}" in event["why"] for status in statuses)


def test_u08_an_evaluation_with_an_accuracy_is_no_event(tmp_path: Path):
    run = create_run(tmp_path, load_recipe("r1"))

    _note_without_score(run, 20, NAME, accuracy_metrics(NAME, answers("wrong", "error")))

    assert read_events(run.events) == []


def test_u08_a_summary_says_of_how_many_answers_an_accuracy_is():
    all_scored, half = (accuracy_metrics(NAME, answers("right", "wrong", *more)) for more in ((), ("error",) * 2))

    assert with_interval(half, NAME) == f"{with_interval(all_scored, NAME)} (50.0% of the answers could be scored)"


def test_u08_two_evaluations_are_compared_on_the_questions_that_both_could_score():
    before = outcomes_of(answers("wrong", "error", "right"))
    after = outcomes_of(answers("right", "right", "right"))

    assert before == {"q0": [0.0], "q2": [1.0]}
    assert paired_difference(before, {question: after[question] for question in before}).mean == 0.5
