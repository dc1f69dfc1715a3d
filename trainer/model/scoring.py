"""Log-probs and entropies out of hidden states, without ever holding [tokens × vocabulary] at once."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = {"cpu": 32 * 2**20, "cuda": 512 * 2**20}
"""Size of the float32 logits that exist at once, by type of device; scoring them takes a few times as much.

Larger chunks gain nothing on a CPU. On a GPU each chunk reads the output layer's weight and adds to its gradient; with
some thousand tokens a chunk, that costs little.
"""


def score(logits: Tensor, targets: Tensor, temperature: float, unused: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy of each distribution softmax(logits / temperature).

    Args:
        logits: [N, V], any float dtype; made float32 before anything else is done, unless they are float64.
        targets: [N] int64.
        temperature: > 0.
        unused: int64, which of the V are no tokens, because the output layer was padded. They have no share of the
            softmax and get no gradient. None where all are tokens.

    Returns:
        Log-probs [N] float32, never above 0, with gradient; entropies [N] float32 in nats, without gradient.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    if unused is not None:
        # The lowest number instead of -inf: where the target is no token itself, there is no NaN out of 0 × inf.
        logits.index_fill_(-1, unused, torch.finfo(logits.dtype).min)
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs.gather(-1, targets[:, None]).squeeze(-1)
    with torch.no_grad():
        entropies = torch.special.entr(logprobs.exp()).sum(-1)
    return chosen, entropies


def score_in_chunks(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float, unused: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`score` of head(hidden), a chunk of tokens at a time; the backward pass makes each chunk's logits again.

    Args:
        head: output layer from H to V features, with a `weight` [V, H].
        hidden: [N, H] hidden states; N may be 0.
        targets: [N] int64.
        temperature: > 0.
        unused: as in `score`.

    Returns:
        As `score`.
    """
    vocabulary = head.get_parameter("weight").shape[0]
    rows = max(1, CHUNK_BYTES[hidden.device.type] // (4 * vocabulary))

    def score_chunk(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return score(head(hidden), targets, temperature, unused)

    if len(hidden) <= rows:
        return score_chunk(hidden, targets)
    parts = [
        checkpoint(score_chunk, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat([chosen for chosen, _ in parts]), torch.cat([entropies for _, entropies in parts])
