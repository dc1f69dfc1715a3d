import subprocess
import sys

import pytest

from tasks.reward.dynamic_sampling import (
    NothingToLearn,
    Selected,
    informative,
    needs_another_round,
    select_groups,
)


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [([1, 0], True), ([1, 1], False), ([0, 0], False), ([1, None], False), ([1, None, 0], True), ([], False)],
)
def test_a_group_is_informative_if_raw_accuracies_differ(accuracies, expected: bool):
    assert informative(accuracies) is expected


def test_a_step_gets_its_configured_number_of_groups_the_first_ones():
    rounds = {"a": [1, 0], "b": [1, 1], "c": [0, 1], "d": [0, 1]}

    assert select_groups(rounds, wanted=2) == Selected(("a", "c"), 0)
    assert select_groups(rounds, wanted=5) == Selected(("a", "c", "d"), 2)


def test_rounds_go_on_while_groups_are_missing():
    assert needs_another_round(Selected(("a",), 1), rounds=9, max_rounds=10)
    assert not needs_another_round(Selected(("a", "b"), 0), rounds=1, max_rounds=10)
    assert not needs_another_round(Selected(("a", "b"), 0), rounds=10, max_rounds=10)


def test_when_all_groups_are_constant_it_ends_after_the_last_round_with_an_error_that_helps():
    accuracies: dict[str, list[float | None]] = {}
    rounds = 0
    with pytest.raises(NothingToLearn, match=r"after 10 rollout rounds only 0 of 4 groups .*dynamic_sampling"):
        while True:
            rounds += 1
            accuracies |= {f"{rounds}-{group}": [1.0, 1.0] for group in range(4)}
            if not needs_another_round(select_groups(accuracies, wanted=4), rounds, max_rounds=10):
                break

    assert rounds == 10


def test_a_flow_can_decide_without_importing_pytorch():
    code = "import sys, tasks.reward.dynamic_sampling; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
