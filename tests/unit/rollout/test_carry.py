"""What a step leaves unfinished, the next one goes on with; nothing is lost for being long."""

from tasks.records.question import Prompt, Question
from tasks.records.samples import SampleRow
from tasks.rollout.carry import sound, split_finished, take_up
from tasks.rollout.shard import Sampling, begin

SAMPLING = Sampling(samples=2, max_tokens=8, temperature=1.0, run_seed=0)


def places(*numbers: int) -> list[tuple[int, Prompt]]:
    return [(number, Prompt(Question(f"new {number}", "q", "1", "test"), [number])) for number in numbers]


def finished(rows: list[SampleRow], *groups: int) -> list[SampleRow]:
    return [row | {"finish_reason": "stop"} if row["group"] in groups else row for row in rows]


def test_the_first_finished_groups_are_taken_and_the_others_left() -> None:
    rows = finished(begin(places(0, 2, 4, 6), 1, SAMPLING), 2, 4, 6)

    taken, left = split_finished(rows, wanted=2)

    assert [row["group"] for row in taken] == [2, 2, 4, 4]
    assert [row["group"] for row in left] == [0, 0, 6, 6]


def test_a_group_with_one_unfinished_sample_is_left_whole() -> None:
    rows = finished(begin(places(0, 1), 1, SAMPLING), 0, 1)
    rows[0] |= {"finish_reason": "abort", "response_ids": [5]}

    taken, left = split_finished(rows, wanted=2)

    assert {row["group"] for row in taken} == {1}
    assert [row["response_ids"] for row in left] == [[5], []]


def test_u13_tokens_that_an_earlier_step_left_and_nobody_can_use_are_made_anew() -> None:
    _, left = split_finished(finished(begin(places(0, 2), 1, SAMPLING), 0), wanted=1)
    left[0] |= {"response_ids": [5, 6], "logprobs": [-0.5, None], "weights_versions": [0, 0]}
    left[1] |= {"response_ids": [5], "logprobs": [-0.5], "weights_versions": [0]}

    torn, whole = map(sound, left)

    assert (torn["response_ids"], torn["logprobs"], torn["weights_versions"]) == ([], [], [])
    assert (torn["seed"], torn["finish_reason"]) == (left[0]["seed"], "abort")
    assert whole == left[1]


def test_left_groups_take_the_first_places_of_the_next_step_and_keep_what_they_have() -> None:
    _, left = split_finished(finished(begin(places(0, 2, 4), 1, SAMPLING), 0), wanted=1)
    left[0] |= {"response_ids": [5, 6], "weights_versions": [0, 0]}

    rows = take_up(left, places(0, 2, 4), 2, SAMPLING)

    assert [row["group"] for row in rows] == [0, 0, 2, 2, 4, 4]
    assert [row["prompt_id"] for row in rows] == ["new 2", "new 2", "new 4", "new 4", "new 4", "new 4"]
    assert {row["step"] for row in rows} == {2}
    assert rows[0]["response_ids"] == [5, 6]
    assert rows[0]["seed"] == left[0]["seed"]


def test_every_sample_has_its_own_seed_after_groups_were_taken_up() -> None:
    _, left = split_finished(begin(places(0, 2, 4), 1, SAMPLING), wanted=0)

    rows = take_up(left[:2], places(0, 2, 4), 2, SAMPLING)

    assert len({row["seed"] for row in rows}) == len(rows)


def test_with_nothing_left_all_places_are_new() -> None:
    assert take_up([], places(0, 1), 2, SAMPLING) == begin(places(0, 1), 2, SAMPLING)
