from hypothesis import given
from hypothesis import strategies as st

from trainer.batches.minibatches import minibatches

GROUPS = ["a", "a", "b", "c", "b", "d", "c", "e"]


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1),
    st.integers(1, 3),
    st.integers(1, 7),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_each_epoch_has_each_sample_once_in_whole_groups(
    groups: list[str], epochs: int, count: int, seed: int, version: int
):
    steps = minibatches(groups, epochs=epochs, count=count, seed=seed, version=version)

    size = min(count, len(set(groups)))
    assert len(steps) == epochs * size
    for epoch in range(epochs):
        of_epoch = steps[epoch * size : (epoch + 1) * size]
        assert sorted(index for step in of_epoch for index in step) == list(range(len(groups)))
        members = [{groups[index] for index in step} for step in of_epoch]
        assert sum(len(part) for part in members) == len(set(groups))


def test_one_minibatch_is_all_samples_in_their_order():
    assert minibatches(GROUPS, epochs=2, count=1, seed=0, version=0) == [list(range(8))] * 2


def test_minibatches_are_as_equal_as_whole_groups_allow():
    steps = minibatches(GROUPS, epochs=1, count=2, seed=0, version=0)

    assert sorted(len({GROUPS[index] for index in step}) for step in steps) == [2, 3]


def test_epochs_are_dealt_anew():
    groups = [str(index) for index in range(10)]

    first, second = (
        minibatches(groups, epochs=2, count=1 + 9, seed=0, version=0)[i * 10 : i * 10 + 10] for i in (0, 1)
    )

    assert first != second


def test_seed_and_version_decide_the_order():
    groups = [str(index) for index in range(10)]

    def order(seed: int, version: int) -> list[list[int]]:
        return minibatches(groups, epochs=1, count=10, seed=seed, version=version)

    assert order(0, 3) == order(0, 3)
    assert order(0, 3) != order(0, 4)
    assert order(0, 3) != order(1, 3)
