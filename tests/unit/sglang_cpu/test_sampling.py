"""Sampling with a seed a request."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.sglang_cpu.sampling import choose_tokens, uniform

SEEDS = st.integers(0, 2**31 - 1)


def draw(seeds: list[int], positions: list[int]) -> torch.Tensor:
    return uniform(torch.tensor(seeds), torch.tensor(positions))


@given(SEEDS, st.integers(0, 10_000))
def test_a_draw_depends_on_seed_and_position_only(seed: int, position: int):
    alone = draw([seed], [position])
    beside = draw([3, seed, 5], [1, position, 2])
    assert alone[0] == beside[1]
    assert 0 <= alone[0] < 1


def test_draws_are_spread_evenly_over_seeds_and_over_positions():
    # 20,000 draws in 10 bins: 2,000 a bin, standard deviation sqrt(20000 * 0.1 * 0.9) = 42.4; 4.5 of them are 191.
    numbers = torch.arange(20_000)
    for draws in (uniform(numbers, torch.full_like(numbers, 5)), uniform(torch.full_like(numbers, 5), numbers)):
        counts = torch.histc(draws, bins=10, min=0, max=1)
        assert (counts - 2000).abs().max() < 191


def test_neighbouring_seeds_and_positions_are_unrelated():
    # The correlation of 20,000 unrelated pairs has standard deviation 1 / sqrt(20000) = 0.0071; 4.5 of them are 0.032.
    numbers = torch.arange(20_000)
    here, there = uniform(numbers, numbers), uniform(numbers + 1, numbers)
    shifted = uniform(numbers - 1, numbers + 1)  # the same sum of seed and position
    for other in (there, shifted):
        assert abs(torch.corrcoef(torch.stack([here, other]))[0, 1]) < 0.032


def test_the_cumulative_distribution_is_inverted():
    # Cumulative: 0.5, 0.5, 0.8, 1.0. A draw on an edge belongs to the next token of positive probability.
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.2]], dtype=torch.float64).expand(6, -1)
    draws = torch.tensor([0.0, 0.499, 0.5, 0.79, 0.81, 1 - 2**-53], dtype=torch.float64)
    assert choose_tokens(probs, draws).tolist() == [0, 0, 2, 2, 3, 3]


@given(st.lists(st.sampled_from([0.0, 1e-30, 0.1, 1.0]), min_size=2, max_size=9), st.floats(0, 1 - 2**-53))
def test_a_token_of_probability_zero_is_never_chosen(weights: list[float], number: float):
    weights[len(weights) // 2] = 0.7
    token = choose_tokens(torch.tensor([weights]), torch.tensor([number], dtype=torch.float64))
    assert weights[int(token)] > 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_a_row_that_is_no_distribution_gets_an_id_of_the_vocabulary_and_disturbs_no_other(value: float):
    probs = torch.tensor([[0.0, 1.0, 0.0], [value] * 3, [0.0, 0.0, 1.0]])
    chosen = choose_tokens(probs, torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64))
    assert (chosen[0], chosen[2]) == (1, 2)
    assert 0 <= int(chosen[1]) < 3
