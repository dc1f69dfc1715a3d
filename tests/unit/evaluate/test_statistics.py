from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from tasks.evaluate.statistics import accuracy, mean_pass_at_k, paired_difference, pass_at_k, with_interval


def outcomes(*problems: Sequence[float]) -> dict[str, Sequence[float]]:
    return {f"q{i}": samples for i, samples in enumerate(problems)}


def greedy(right: int, problems: int) -> dict[str, Sequence[float]]:
    return outcomes(*([1.0] for _ in range(right)), *([0.0] for _ in range(problems - right)))


class TestPassAtK:
    @pytest.mark.parametrize(
        ("n", "c", "k", "expected"),
        [
            (4, 1, 1, 0.25),
            (4, 1, 2, 0.5),
            (4, 1, 4, 1.0),
            # 1 - C(7,5) / C(10,5) = 1 - 21 / 252
            (10, 3, 5, 0.916667),
            (5, 0, 3, 0.0),
        ],
    )
    def test_is_the_unbiased_estimate(self, n: int, c: int, k: int, expected: float):
        assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-6)

    def test_needs_at_least_k_samples(self):
        with pytest.raises(ValueError, match="pass@5 can't be estimated from 2 samples"):
            pass_at_k(2, 0, 5)

    def test_refuses_more_right_samples_than_there_are(self):
        with pytest.raises(ValueError, match="5 right samples of 4"):
            pass_at_k(4, 5, 1)

    def test_counts_samples_of_a_problem_not_problems(self):
        solved = greedy(60, 200)
        assert mean_pass_at_k(solved, 1) == pytest.approx(0.3)
        with pytest.raises(ValueError, match="pass@10 can't be estimated from 1 samples"):
            mean_pass_at_k(solved, 10)

    def test_is_averaged_over_problems_not_pooled(self):
        # Pooled, 8 samples with 4 right would give 1 - C(4,2) / C(8,2) = 0.785714.
        assert mean_pass_at_k(outcomes([1, 1, 1, 1], [0, 0, 0, 0]), 2) == 0.5

    def test_keeps_problems_apart_by_id(self):
        assert mean_pass_at_k(outcomes([1, 1], [0, 0]), 2) == 0.5


class TestAccuracy:
    @pytest.mark.parametrize(("right", "problems"), [(60, 200), (0, 20), (20, 20), (1, 3)])
    def test_of_one_sample_a_problem_has_wilsons_interval(self, right: int, problems: int):
        estimate = accuracy(greedy(right, problems))
        wilson = binomtest(right, problems).proportion_ci(0.95, method="wilson")
        assert estimate.mean == pytest.approx(right / problems)
        assert (estimate.low, estimate.high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)
        assert estimate.problems == problems

    def test_of_equal_samples_of_a_problem_is_worth_no_more_than_one_of_them(self):
        once, four_times = accuracy(outcomes([1], [0], [1])), accuracy(outcomes([1] * 4, [0] * 4, [1] * 4))
        assert (four_times.low, four_times.high) == pytest.approx((once.low, once.high))

    def test_of_samples_as_good_as_independent_is_worth_all_of_them(self):
        # Every problem has the same mean, so there is nothing between problems: 40 samples, 20 right.
        estimate = accuracy(outcomes(*([1, 0, 1, 0] for _ in range(10))))
        wilson = binomtest(20, 40).proportion_ci(0.95, method="wilson")
        assert (estimate.low, estimate.high) == pytest.approx((wilson.low, wilson.high))

    def test_counts_two_problems_with_the_same_question_as_two(self):
        estimate = accuracy(outcomes([1, 1], [0, 0]))
        assert (estimate.mean, estimate.problems) == (0.5, 2)

    def test_weighs_problems_alike_whatever_their_number_of_samples(self):
        assert accuracy(outcomes([1], [0, 0, 0])).mean == 0.5

    def test_is_never_certain(self):
        assert accuracy(greedy(200, 200)).low < 1.0
        assert accuracy(outcomes([1, 1], [1, 1])).low < 1.0

    def test_of_nothing_is_an_error(self):
        with pytest.raises(ValueError, match="no problems"):
            accuracy({})
        with pytest.raises(ValueError, match="problem q1 has no samples"):
            accuracy(outcomes([1], []))

    @given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=5), min_size=1, max_size=20))
    def test_lies_in_its_interval_within_0_and_1(self, problems: list[list[float]]):
        estimate = accuracy(outcomes(*problems))
        assert 0.0 <= estimate.low <= estimate.mean + 1e-9 and estimate.mean <= estimate.high + 1e-9 <= 1.0 + 1e-9
        assert estimate.low < estimate.high
        assert estimate.mean == pytest.approx(fmean(fmean(samples) for samples in problems))


class TestPairedDifference:
    def test_has_the_adjusted_wald_interval(self):
        # 10 problems: 4 won, 1 lost, 5 alike. With one more won and one more lost (Bonett and Price 2012):
        # p+ = 5/12, p- = 2/12, difference 0.25, variance p+ + p- - 0.25^2 = 0.520833,
        # half = 1.959964 * sqrt(0.520833 / 12) = 0.408327.
        before = outcomes(*[[0]] * 4, [1], *[[1]] * 5)
        after = outcomes(*[[1]] * 4, [0], *[[1]] * 5)
        estimate = paired_difference(before, after)
        assert estimate.mean == pytest.approx(0.3)
        assert (estimate.low, estimate.high) == pytest.approx((0.25 - 0.408327, 0.25 + 0.408327), abs=1e-5)

    def test_changes_its_sign_with_its_sides(self):
        one, other = outcomes([1, 0], [0, 0], [1, 1]), outcomes([1, 1], [1, 0], [1, 1])
        forth, back = paired_difference(one, other), paired_difference(other, one)
        assert (back.mean, back.low, back.high) == pytest.approx((-forth.mean, -forth.high, -forth.low))

    def test_gains_from_pairing(self):
        # The same 20 problems are hard in both; 10 of the others are won. Unpaired, 0.5 and 0.75 of 40 overlap.
        before, after = greedy(20, 40), greedy(30, 40)
        assert accuracy(before).high > accuracy(after).low
        assert paired_difference(before, after).low > 0.0

    def test_without_any_change_is_not_certain(self):
        estimate = paired_difference(greedy(20, 40), greedy(20, 40))
        assert estimate.mean == 0.0
        assert estimate.low < 0.0 < estimate.high

    def test_doesnt_need_the_same_number_of_samples(self):
        assert paired_difference(outcomes([0], [1]), outcomes([1, 0], [1, 1])).mean == 0.25

    def test_refuses_different_problems(self):
        with pytest.raises(ValueError, match=r"1 problems were evaluated only once, e\.g\. q1"):
            paired_difference(outcomes([1], [1]), outcomes([1]))


def test_an_accuracy_is_shown_with_its_interval():
    metrics = {"greedy_accuracy": 0.86, "greedy_accuracy_low": 0.80512, "greedy_accuracy_high": 0.9}

    assert with_interval(metrics, "greedy_accuracy") == "0.860 [0.805, 0.900]"
