import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.errors import UserError
from configs.reward import Reward
from tasks.records.question import Question
from tasks.reward import kinds
from tasks.reward.outcome import Answered, Outcome, Score
from tasks.reward.scorer import Scorer, gold_statuses
from tests.unit.reward.conftest import Answer, MakeScorer

AS_TOLD = "python:tests.unit.reward.samples.as_told"


@pytest.mark.parametrize(
    ("text", "parts", "reward"),
    [
        ("<think>4+3</think><answer>7</answer>", {"accuracy": 1.0, "format": 1.0, "length": -0.5}, 1.25),
        ("<think>4+3</think><answer>8</answer>", {"accuracy": 0.0, "format": 1.0, "length": -0.5}, 0.25),
        ("7", {"accuracy": 1.0, "format": 0.0, "length": -0.5}, 0.75),
        ("8", {"accuracy": 0.0, "format": 0.0, "length": -0.5}, -0.25),
    ],
)
def test_the_reward_is_the_weighted_sum_of_its_raw_parts(
    text: str, parts: dict[str, float | None], reward: float, make_scorer: MakeScorer, answer: Answer
):
    further = {
        "format": {"kind": "format", "weight": 0.5},
        "length": {"kind": "overlong", "max_tokens": 100, "buffer": 20, "weight": 0.5},
    }
    scorer = make_scorer(accuracy="numeric", parts=further)
    status = "right" if parts["accuracy"] else "wrong"
    assert scorer.score([answer("7", text, tokens=90)]) == [Score(reward, parts, status)]


def test_without_a_length_part_no_length_costs_anything(make_scorer: MakeScorer, answer: Answer):
    assert make_scorer(accuracy="numeric").score([answer("7", "7", tokens=10**6)]) == [
        Score(1.0, {"accuracy": 1.0}, "right")
    ]


def test_a_length_part_may_go_by_the_accuracy_and_take_its_place(make_scorer: MakeScorer, answer: Answer):
    length = {"kind": "cosine", "max_tokens": 100, "weight": 10}
    scorer = make_scorer(accuracy={"kind": "numeric", "weight": 0}, parts={"length": length})
    right, wrong = scorer.score([answer("7", text, tokens=50) for text in ("7", "8")])
    assert (right.status, right.reward) == ("right", pytest.approx(1.5))
    assert (wrong.status, wrong.reward) == ("wrong", pytest.approx(-5.0))


def test_the_accuracy_has_a_weight_too(make_scorer: MakeScorer, answer: Answer):
    scorer = make_scorer(accuracy={"kind": "numeric", "weight": 2.0})
    assert scorer.score([answer("7", "7")]) == [Score(2.0, {"accuracy": 1.0}, "right")]


def test_a_cut_response_is_truncated_unless_its_answer_was_there(make_scorer: MakeScorer, answer: Answer):
    scorer = make_scorer(accuracy="numeric")
    texts = [r"\boxed{42} because", "The answer is 42", r"\boxed{4"]  # 42 may be the beginning of 420
    scores = scorer.score([answer("42", text, finish_reason="length") for text in texts])
    assert [score.status for score in scores] == ["right", "truncated", "truncated"]


def test_each_source_has_its_own_reward_and_the_order_is_kept(answer: Answer):
    def ask(source: str, text: str) -> Answered:
        return Answered(text, Question("q", "", "42", source), "stop", 1)

    batch = [ask("words", "42.0"), ask("sums", "42.0"), ask("words", "42"), ask("sums", "41"), ask("other", "42.0")]
    with Scorer(Reward(), {"words": Reward.model_validate({"accuracy": {"kind": "exact", "weight": 3}})}) as scorer:
        assert [score.reward for score in scorer.score(batch)] == [0.0, 1.0, 3.0, 0.0, 1.0]


@pytest.mark.parametrize("accuracy", ["exact", AS_TOLD])
def test_a_scorer_that_fails_harms_its_own_sample_only(
    accuracy: str,
    answer: Answer,
    make_scorer: MakeScorer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    def fails_on_raise(part: object, answered: Answered) -> Outcome:
        if answered.text == "raise":
            raise ValueError("boom")
        return Outcome(float(answered.text))

    monkeypatch.setitem(kinds.AT_ONCE, "exact", fails_on_raise)
    batch = [answer("", text, id=f"q{i}") for i, text in enumerate(["1", "raise", "1", "0"])]
    scores = make_scorer(accuracy=accuracy).score(batch)
    assert [score.reward for score in scores] == [1.0, None, 1.0, 0.0]
    assert scores[1] == Score(None, {"accuracy": None}, "error")
    assert "accuracy, question q1" in caplog.text and "boom" in caplog.text
    assert "q0" not in caplog.text


@pytest.mark.parametrize("text", ["nan", "inf", "1.5", "-0.5", "words", "exit"])
def test_a_value_out_of_its_range_is_an_error(text: str, make_scorer: MakeScorer, answer: Answer):
    [score] = make_scorer(accuracy=AS_TOLD).score([answer("", text)])
    assert (score.reward, score.status) == (None, "error")


def test_a_further_part_may_punish(make_scorer: MakeScorer, answer: Answer):
    scorer = make_scorer(accuracy="exact", parts={"own": AS_TOLD})
    assert scorer.score([answer("-0.5", "-0.5")]) == [Score(0.5, {"accuracy": 1.0, "own": -0.5}, "right")]


def test_a_function_may_give_part_of_the_marks_and_find_a_question_unscorable(make_scorer: MakeScorer, answer: Answer):
    scores = make_scorer(accuracy=AS_TOLD).score([answer("", "0.5"), answer("", "none"), answer("", "1")])
    assert [(score.reward, score.status) for score in scores] == [(0.5, "wrong"), (None, "unscorable"), (1.0, "right")]


def test_a_further_part_that_fails_leaves_no_reward_and_one_that_takes_too_long_counts_nothing(
    make_scorer: MakeScorer, answer: Answer
):
    scorer = make_scorer(accuracy="exact", parts={"own": AS_TOLD}, timeout_seconds=0.5)
    assert scorer.score([answer("raise", "raise"), answer("hang", "hang")]) == [
        Score(None, {"accuracy": 1.0, "own": None}, "error"),
        Score(1.0, {"accuracy": 1.0, "own": 0.0}, "timeout"),
    ]


def test_a_pattern_that_backtracks_for_ever_is_stopped(make_scorer: MakeScorer, answer: Answer):
    scorer = make_scorer(accuracy={"kind": "regex", "pattern": "^(a+)+$"}, timeout_seconds=0.5)
    scores = scorer.score([answer("", "a" * 40 + "!"), answer("", "aaa")])
    assert [score.status for score in scores] == ["timeout", "right"]


def test_a_function_that_cant_be_imported_is_reported_as_the_recipes_mistake(answer: Answer):
    with Scorer(Reward.model_validate({"accuracy": "python:no.such.function"})) as scorer, pytest.raises(UserError):
        scorer.score([answer("", "")])


@pytest.mark.parametrize("kind", ["math", "numeric", "exact", "choice", "json"])
def test_a_question_is_refused_if_its_own_gold_is_not_right(kind: str, make_scorer: MakeScorer, answer: Answer):
    golds = {"math": r"\frac12", "numeric": "1/2", "exact": "one half", "choice": "C", "json": '{"half": 0.5}'}
    questions = [answer(gold, "", id=gold).question for gold in (golds[kind], "")]
    assert gold_statuses(make_scorer(accuracy=kind), questions) == ["right", "unscorable"]


def test_golds_that_have_no_value_of_their_own_are_taken_as_right_and_further_parts_do_not_count(
    make_scorer: MakeScorer, answer: Answer
):
    question = answer("7", "").question
    assert gold_statuses(make_scorer(accuracy=AS_TOLD), [question]) == ["right"]
    assert gold_statuses(make_scorer(accuracy="numeric", parts={"own": AS_TOLD}), [question]) == ["right"]


HOSTILE = [
    "<think></think><answer>" + "a" * 200_000,
    "<answer>" * 50_000,
    r"\boxed{" * 50_000,
    "1,234" + ",234" * 50_000 + "e5",
    "1" + " " * 200_000 + "\n2 and",
    "9" * 200_000,
    "**a" * 50_000,
    "answer " * 50_000,
    "answer" + "\n" * 200_000,
    "<think>" * 50_000,
    "$" * 200_000,
    "$x" * 100_000,
    r"\(" * 100_000,
    r"\text{" * 50_000,
    "[" * 200_000,
    "```" * 50_000,
    "```json " * 50_000 + "\n" * 50_000,
    "is " * 70_000,
    "a, " * 70_000,
    "#### " + "1 1/" * 50_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
@pytest.mark.parametrize("kind", ["math", "numeric", "exact", "choice", "json"])
def test_long_hostile_responses_are_wrong_and_take_no_longer_than_others(
    kind: str, text: str, make_scorer: MakeScorer, answer: Answer
):
    # Slow ones would run into the suite's time limit: they are decided where nothing could stop them.
    gold = {"choice": "C", "exact": "y"}.get(kind, "42")
    scorer = make_scorer(accuracy=kind, parts={"format": "format", "repeats": "repetition"})
    [score] = scorer.score([answer(gold, text)])
    assert score.status == "wrong"


LATEX = (
    r"\boxed{ \frac \sqrt \infty \begin{pmatrix} \end{pmatrix} \text{ \int \sum_{k=1}^{ \pm \cup \{ \} \\ { } ^ _ ! &"
)
PLAIN = "9 10 x e i $ ( ) [ ] , % = < / - \u2212 \x00 \ud800 ٣ <think> </think> <answer> </answer> #### Answer:"
PIECES = st.sampled_from([*LATEX.split(" "), *PLAIN.split(" "), " "])
TEXTS = st.text() | st.lists(PIECES, max_size=30).map("".join)
PARTS = {
    "format": {"kind": "format", "weight": 0.5},
    "pattern": {"kind": "regex", "pattern": "x{gold}"},
    "repeats": {"kind": "repetition", "words": 2},
}


@given(text=TEXTS, gold=st.sampled_from(["42", "x^2", "[0,1)", "C", r"\frac{1}{2}"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_response_raises_hangs_or_leaves_the_range_of_the_reward(text: str, gold: str, make_scorer: MakeScorer):
    scorer = make_scorer(accuracy="math", parts=PARTS, timeout_seconds=2.0)
    [score] = scorer.score([Answered(text, Question("q", "", gold, "test"), "stop", 1)])
    assert score.status in ("right", "wrong", "timeout", "error")
    assert score.reward is None if score.status == "error" else -1.0 <= (score.reward or 0.0) <= 2.5


@given(text=TEXTS, gold=TEXTS, kind=st.sampled_from(["numeric", "exact", "choice", "json"]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_gold_and_no_response_raise_where_nothing_can_be_killed(
    text: str, gold: str, kind: str, make_scorer: MakeScorer
):
    [score] = make_scorer(accuracy=kind).score([Answered(text, Question("q", "", gold, "test"), "stop", 1)])
    assert (score.reward, score.status) in [(1.0, "right"), (0.0, "wrong"), (None, "unscorable")]
