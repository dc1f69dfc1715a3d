"""Models whose weights are quantised: they can be sampled from, but not trained."""

from collections.abc import Mapping
from typing import Any


def quantisation(settings: Mapping[str, Any]) -> str | None:
    """Return how the weights are quantised by a model's `config.json`, such as `fp8`; None if they are not."""
    config = settings.get("quantization_config") or settings.get("compression_config")
    return config.get("quant_method", "an unknown method") if config else None


def untrainable(path: str, method: str) -> str:
    """Say why such a model is refused, and what to give instead."""
    return (
        f"the weights of model.path {path} are quantised ({method}) and can't be trained: "
        "give the same model with bfloat16 or float32 weights"
    )
