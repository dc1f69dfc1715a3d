from itertools import pairwise

import pytest

from configs.data import Curriculum
from tasks.dataset.curriculum import observe, summarise, weigh
from tasks.dataset.prompt_order import weighted_prompts_of_step

Samples = list[dict[str, str]]


def samples(**statuses: str) -> Samples:
    """Samples of a step; each prompt's statuses by their first letters."""
    names = {"r": "right", "w": "wrong", "t": "truncated", "u": "unscorable", "e": "error", "o": "timeout"}
    return [{"prompt_id": prompt, "status": names[letter]} for prompt, each in statuses.items() for letter in each]


def test_a_pass_rate_is_the_share_of_right_samples():
    assert observe({}, samples(a="rrww", b="rtt", c="w")) == {"a": 0.5, "b": pytest.approx(1 / 3), "c": 0.0}


def test_samples_without_a_verdict_do_not_count():
    assert observe({"b": 0.75}, samples(a="rue", b="uoe")) == {"a": 1.0, "b": 0.75}


def test_the_latest_rate_replaces_the_earlier_one():
    assert observe({"a": 0.0, "b": 1.0}, samples(a="r")) == {"a": 1.0, "b": 1.0}


def test_prompts_solved_half_of_the_time_weigh_most_and_new_ones_as_much():
    rates = {"never": 0.0, "half": 0.5, "always": 1.0, "quarter": 0.25}
    weights = weigh([*rates, "new"], rates, Curriculum(floor=0.1))
    # 0.1 + 0.9 * 4 * 0.25 * 0.75 = 0.775.
    assert weights == pytest.approx([0.1, 1.0, 0.1, 0.775, 1.0])


def test_the_pass_rates_are_summed_up_for_the_tracker():
    rates = {"never": 0.0, "half": 0.5, "often": 0.75, "always": 1.0}

    assert summarise(rates, Curriculum(low=0.5, high=0.75)) == {
        "rollout/pass_rate_prompts": 4.0,
        "rollout/pass_rate_mean": 0.5625,
        "rollout/pass_rate_in_range_share": 0.5,
    }
    # A mean of nothing is no number.
    assert summarise({}, Curriculum()) == {"rollout/pass_rate_prompts": 0.0}


def test_a_range_with_a_floor_of_one_filters_only():
    rates = {"hard": 0.1, "low": 0.2, "mid": 0.5, "high": 0.8, "easy": 0.9}
    weights = weigh([*rates, "new"], rates, Curriculum(low=0.2, high=0.8, floor=1.0))
    assert [weight > 0.5 for weight in weights] == [False, True, True, True, False, True]
    assert weights[1:4] == [1.0, 1.0, 1.0]


def test_a_resumed_run_draws_what_it_would_have_drawn():
    prompts = [f"p{i}" for i in range(12)]
    curriculum = Curriculum()

    def run(steps: range, rates: dict[str, float]) -> tuple[list[list[int]], dict[str, float]]:
        drawn = []
        for step in steps:
            drawn.append(weighted_prompts_of_step(0, step, weigh(prompts, rates, curriculum), 4))
            scored = samples(**{prompts[i]: "rw"[(i + step) % 2] * 3 + "r" for i in drawn[-1]})
            rates = observe(rates, scored)
        return drawn, rates

    whole, final = run(range(8), {})
    first, halfway = run(range(4), {})
    rest, resumed = run(range(4, 8), halfway)
    assert first + rest == whole and resumed == final
    assert len({tuple(step) for step in whole}) == 8 and all(a != b for a, b in pairwise(whole))
