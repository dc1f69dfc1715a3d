import numpy as np
from matplotlib.lines import Line2D

from flows.curves import draw_curves

HISTORY = {
    0: {f"eval/heldout/{kind}_accuracy{end}": 0.2 for kind in ("greedy", "sampled") for end in ("", "_low", "_high")},
    1: {"reward/mean": 0.25},
    2: {"reward/mean": 0.75},
}


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def test_rewards_and_accuracies_are_drawn_against_their_own_steps():
    rewards, accuracies = draw_curves("r1", {"seed 0": HISTORY}).axes

    (line,) = rewards.get_lines()
    assert points(line) == [[1, 0.25], [2, 0.75]]
    assert [line.get_label() for line in accuracies.get_lines()] == ["greedy, seed 0", "sampled, seed 0"]
    assert [points(line) for line in accuracies.get_lines()] == [[[0, 0.2]], [[0, 0.2]]]


def test_each_run_has_its_own_colour():
    rewards, _ = draw_curves("r1", {"seed 0": HISTORY, "seed 1": HISTORY}).axes

    assert len({line.get_color() for line in rewards.get_lines()}) == 2
