"""A sample that no engine could make is not scored, and takes no other's score."""

from configs.loader import load_recipe
from tasks.records.samples import GIVEN_UP, SampleRow
from tasks.reward.task import score_rows


def row(text: str, finish_reason: str = "stop") -> SampleRow:
    ids = [] if finish_reason == GIVEN_UP else [5]
    said = {"text": text, "finish_reason": finish_reason, "response_ids": ids}
    return {"prompt_id": "q", "question": "1+1", "gold": "2", "source": "s", "metadata": "{}", **said}


def test_u13_a_given_up_sample_is_an_error_without_a_reward_and_the_others_keep_theirs() -> None:
    rows = [row("<answer>2</answer>"), row("", GIVEN_UP), row("<answer>3</answer>")]

    scored = score_rows(rows, load_recipe("r1"))

    assert [scored_row["status"] for scored_row in scored] == ["right", "error", "wrong"]
    assert (scored[1]["reward"], scored[1]["parts"]) == (None, "{}")


def test_nothing_but_given_up_samples_scores_nothing() -> None:
    (scored,) = score_rows([row("", GIVEN_UP)], load_recipe("r1"))

    assert (scored["status"], scored["reward"]) == ("error", None)
