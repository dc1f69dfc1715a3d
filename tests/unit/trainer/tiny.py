"""Models that are small enough for many forward passes."""

from typing import Any

from transformers import Qwen3Config

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def tiny_config(vocabulary: int, *, tied: bool) -> Qwen3Config:
    """Two layers whose random weights are large enough for a token to matter."""
    return Qwen3Config(
        vocab_size=vocabulary,
        **SIZES,
        head_dim=8,
        initializer_range=0.5,
        tie_word_embeddings=tied,
    )
