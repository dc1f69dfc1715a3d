"""Every sample has a seed of its own, the same in every attempt."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.rollout.shard import sampling_seed

number = st.integers(min_value=0, max_value=10_000)


@given(number, number, number, number)
def test_a_seed_is_a_function_of_run_step_group_and_index(run: int, step: int, group: int, index: int) -> None:
    seed = sampling_seed(run, step, group, index)

    assert seed == sampling_seed(run, step, group, index)
    assert 0 <= seed < 2**31


def test_the_samples_of_a_step_have_different_seeds_whatever_shard_makes_them() -> None:
    seeds = {sampling_seed(7, 3, group, index) for group in range(64) for index in range(16)}

    assert len(seeds) == 64 * 16


def test_another_step_or_run_has_other_seeds() -> None:
    def seeds(run: int, step: int) -> list[int]:
        return [sampling_seed(run, step, 0, index) for index in range(4)]

    assert not set(seeds(7, 3)) & set(seeds(7, 4))
    assert not set(seeds(7, 3)) & set(seeds(8, 3))
