import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.dataset.order import prompts_of_step


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
