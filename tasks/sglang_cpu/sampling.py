"""Sampling with a seed a request, on a CPU.

SGLang's own seeded sampler needs a compiled hash. This one draws one uniform number a token from (seed, position) and
inverts the cumulative distribution, so it costs one pass over the vocabulary.
"""

import torch

# Constants of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014), signed.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def uniform(seeds_b: torch.Tensor, positions_b: torch.Tensor) -> torch.Tensor:
    """Draw one number a row: the same for the same seed and position, unrelated for others.

    Args:
        seeds_b: int64 [batch], any value.
        positions_b: int64 [batch], the position of the token in its sequence.

    Returns:
        float64 [batch] in [0, 1).
    """
    bits = _mix(_mix(seeds_b + _GAMMA) + positions_b * _GAMMA)
    return _shift(bits, 11).to(torch.float64) * 2.0**-53


def choose_tokens(probs_bv: torch.Tensor, uniform_b: torch.Tensor) -> torch.Tensor:
    """Choose one token a row by inverting the cumulative distribution; tokens of probability 0 are never chosen.

    A row that is no distribution gets some token: its log-prob will be none, which who asked for it finds out. An id
    beyond the vocabulary would end the whole server.

    Args:
        probs_bv: [batch, vocabulary], need not sum to exactly 1.
        uniform_b: float64 [batch] in [0, 1).

    Returns:
        int64 [batch].
    """
    cumulative_bv = probs_bv.cumsum(dim=-1, dtype=torch.float64)
    threshold_b1 = uniform_b[:, None] * cumulative_bv[:, -1:]
    # Rounding may lift the threshold to the total; the last token of positive probability then takes it.
    last_b1 = torch.searchsorted(cumulative_bv, cumulative_bv[:, -1:].contiguous())
    chosen_b1 = torch.minimum(torch.searchsorted(cumulative_bv, threshold_b1, right=True), last_b1)
    return chosen_b1.clamp(max=probs_bv.shape[1] - 1).squeeze(1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right without sign, on int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
