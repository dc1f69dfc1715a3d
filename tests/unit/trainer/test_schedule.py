import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.learner.optimizer import SHAPES, share


def shares(schedule: str, versions: range, warmup_steps: int, steps: int, final_share: float = 0.0) -> list[float]:
    return [
        share(version, schedule=schedule, warmup_steps=warmup_steps, steps=steps, final_share=final_share)
        for version in versions
    ]


def test_linear_rises_over_the_warm_up_and_falls_over_the_rest():
    # Four steps of warm-up, then six of decay: 1, 5/6, 4/6, …
    expected = [0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6]

    assert shares("linear", range(8), 4, 10) == pytest.approx(expected)


def test_a_resume_goes_on_where_the_schedule_was():
    assert shares("linear", range(4, 8), 4, 10) == shares("linear", range(8), 4, 10)[4:]


def test_cosine_is_half_way_down_in_the_middle():
    # 0.5 (1 + cos(π p)) at p = 0, 1/4, 1/2, 3/4: 1, 0.853553, 0.5, 0.146447.
    assert shares("cosine", range(2, 6), 2, 6) == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_constant_stays():
    assert shares("constant", range(100), 2, 10) == [0.5] + [1.0] * 99


def test_without_warm_up_the_first_step_has_it_all():
    assert [shares(schedule, range(1), 0, 5) for schedule in SHAPES] == [[1.0]] * 3


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_final_share_is_reached_and_kept(schedule: str):
    assert shares(schedule, range(10, 13), 4, 10, final_share=0.1) == pytest.approx([0.1] * 3)


@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 20), st.integers(1, 60), st.floats(0, 1))
def test_shares_rise_to_one_and_never_rise_again(schedule: str, warmup: int, steps: int, final: float):
    found = shares(schedule, range(80), warmup, steps, final)

    assert found[:warmup] == sorted(found[:warmup])
    assert found[warmup] == pytest.approx(1.0)
    assert all(later <= earlier for earlier, later in zip(found[warmup:], found[warmup + 1 :], strict=False))
    assert all(0 <= value <= 1 for value in found)
