"""From losses of tokens to one number for the whole optimizer batch."""

import torch
from torch import Tensor


def token_mean(values: Tensor, mask: Tensor, token_count: int) -> Tensor:
    """Share of a micro-batch in the mean over all trained tokens of the batch (DAPO, arXiv 2503.14476, equation 8).

    The shares of all micro-batches of all ranks sum up to that mean, however the batch was split.

    Args:
        values: [B, T] float.
        mask: [B, T] bool; masked values, infinite and NaN ones too, don't count.
        token_count: trained tokens of the *whole* optimizer batch, over all micro-batches and ranks. 0 gives 0.

    Returns:
        Scalar.
    """
    return torch.where(mask, values, 0.0).sum() / max(token_count, 1)
