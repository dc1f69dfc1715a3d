from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.dataset.prompt_order import prompts_of_step, weighted_prompts_of_step


def epoch(seed: int, number: int, prompts: int, prompts_per_step: int) -> list[int]:
    steps = prompts // prompts_per_step
    return [
        i
        for step in range(number * steps, (number + 1) * steps)
        for i in prompts_of_step(seed, step, prompts, prompts_per_step)
    ]


@given(st.integers(0, 2**31), st.integers(0, 3), st.integers(1, 40), st.data())
def test_no_prompt_comes_twice_in_an_epoch(seed: int, number: int, prompts: int, data: st.DataObject):
    prompts_per_step = data.draw(st.integers(1, prompts))
    seen = epoch(seed, number, prompts, prompts_per_step)
    assert len(seen) == len(set(seen)) == prompts - prompts % prompts_per_step
    assert set(seen) <= set(range(prompts))


def test_an_epoch_of_whole_steps_shows_every_prompt():
    assert sorted(epoch(seed=0, number=2, prompts=32, prompts_per_step=8)) == list(range(32))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [epoch(seed, number, prompts=32, prompts_per_step=8) for seed in (0, 1) for number in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_a_step_is_the_same_whenever_it_is_asked_for():
    assert prompts_of_step(7, 12, 100, 16) == prompts_of_step(7, 12, 100, 16)


def test_the_prompts_left_out_differ_from_epoch_to_epoch():
    # 10 prompts in steps of 4: two are left out of each epoch, but over twenty epochs all come.
    assert {i for number in range(20) for i in epoch(0, number, 10, 4)} == set(range(10))


def test_a_step_larger_than_the_dataset_is_refused():
    with pytest.raises(ValueError, match="8 prompts can't be drawn from 3"):
        prompts_of_step(0, 0, 3, 8)


@given(st.integers(0, 2**31), st.integers(0, 99), st.lists(st.floats(1e-9, 1), min_size=1, max_size=30), st.data())
def test_a_weighted_step_has_different_prompts_and_is_always_the_same(
    seed: int, step: int, weights: list[float], data: st.DataObject
):
    count = data.draw(st.integers(1, len(weights)))
    drawn = weighted_prompts_of_step(seed, step, weights, count)
    assert len(set(drawn)) == count and set(drawn) <= set(range(len(weights)))
    assert weighted_prompts_of_step(seed, step, weights, count) == drawn


def test_heavier_prompts_come_more_often():
    counts = Counter(weighted_prompts_of_step(0, step, [1.0, 0.5, 0.25, 0.25], 1)[0] for step in range(4000))
    # Shares 1/2, 1/4, 1/8, 1/8, give or take four standard deviations of the largest: sqrt(4000 * 0.25) = 31.6.
    assert [abs(counts[i] - expected) < 127 for i, expected in enumerate([2000, 1000, 500, 500])] == [True] * 4


def test_prompts_left_out_come_only_when_the_others_run_out():
    weights = [1e-9, 1.0, 1e-9, 0.1, 1.0]
    assert all(set(weighted_prompts_of_step(0, step, weights, 3)) == {1, 3, 4} for step in range(200))
    assert set(weighted_prompts_of_step(0, 0, weights, 5)) == set(range(5))


def test_what_comes_after_a_weighted_step_is_the_rest_of_the_same_draw():
    weights = [0.1, 1.0, 0.5, 0.3, 0.7, 0.2]
    parts = [weighted_prompts_of_step(0, 3, weights, 2, skip=skip) for skip in (0, 2, 4)]
    assert [index for part in parts for index in part] == weighted_prompts_of_step(0, 3, weights, 6)
    with pytest.raises(ValueError, match="2 prompts can't be drawn from 1"):
        weighted_prompts_of_step(0, 3, weights, 2, skip=5)


def test_a_weighted_step_larger_than_the_dataset_is_refused():
    with pytest.raises(ValueError, match="8 prompts can't be drawn from 3"):
        weighted_prompts_of_step(0, 0, [1.0] * 3, 8)
