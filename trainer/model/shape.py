"""How large a model is, without its weights, and for known models without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from configs.errors import UserError
from trainer.model.tokens import positions, positions_in

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True)
class ModelShape:
    """What decides the memory that a model takes.

    Attributes:
        parameters: of the whole model, tied ones once.
        largest_block: parameters of its largest decoder layer.
        layers: decoder layers.
        hidden: width of the hidden states.
        vocabulary: tokens that the output layer scores.
        cache_values: numbers that the KV cache holds for a token, over all layers.
        cache_heads: heads that the cache can be divided by; the latent of multi-head latent attention can't be.
        quantisation: how the weights are quantised, such as `fp8`; None if they are not.
        positions: tokens of the longest context; None where that is not known.
    """

    parameters: int
    largest_block: int
    layers: int
    hidden: int
    vocabulary: int
    cache_values: int
    cache_heads: int
    quantisation: str | None = None
    positions: int | None = None


KNOWN: Mapping[str, ModelShape] = {
    "tiny": ModelShape(1_586_944, 393_664, 4, 192, 63, 512, 2, positions=1_024),
    "smollm2": ModelShape(134_515_008, 3_540_096, 30, 576, 49_152, 11_520, 3, positions=8_192),
    "Qwen/Qwen2.5-0.5B-Instruct": ModelShape(494_032_768, 14_912_384, 24, 896, 151_936, 6_144, 2, positions=32_768),
    "Qwen/Qwen3-1.7B": ModelShape(1_720_574_976, 50_336_000, 28, 2_048, 151_936, 57_344, 8, positions=40_960),
    "Qwen/Qwen3-8B": ModelShape(8_190_735_360, 192_946_432, 36, 4_096, 151_936, 73_728, 8, positions=40_960),
    "Qwen/Qwen3-32B": ModelShape(32_762_123_264, 487_598_336, 64, 5_120, 151_936, 131_072, 8, positions=40_960),
    "meta-llama/Llama-3.1-70B-Instruct": ModelShape(
        70_553_706_496, 855_654_400, 80, 8_192, 128_256, 163_840, 8, positions=131_072
    ),
    "deepseek-ai/DeepSeek-R1": ModelShape(
        671_026_404_352, 11_507_286_016, 61, 7_168, 129_280, 35_136, 1, "fp8", 163_840
    ),
}
"""Models that a plan can be made for without a download. A test counts each from its configuration."""


def model_shape(path: str) -> ModelShape:
    """Return the shape of the recipe's `model.path`.

    Raises:
        UserError: the model is neither known here nor a local folder.
    """
    if path in KNOWN:
        return KNOWN[path]
    if (Path(path) / "config.json").is_file():
        from transformers import AutoConfig

        return shape_of(AutoConfig.from_pretrained(path, local_files_only=True))
    raise UserError(
        f"model.path {path}: its size is not known before it is downloaded. Give a local folder with its config.json, "
        f"or plan with a model of about its size: {', '.join(KNOWN)}"
    )


def parameters_of(path: str) -> int | None:
    """Return how many parameters a known model, or one whose weights lie in a folder, has; None for any other."""
    if path in KNOWN:
        return KNOWN[path].parameters
    files = sorted(Path(path).glob("*.safetensors")) if path else []
    return sum(map(_values_in, files)) or None


def longest_context(path: str) -> int | None:
    """Return the positions of a known model, or of one in a folder; None for any other."""
    return KNOWN[path].positions if path in KNOWN else positions_in(Path(path))


def shape_of(config: "PreTrainedConfig") -> ModelShape:
    """Build a model of a configuration on PyTorch's `meta` device, without memory for its weights, and count."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    names = model._no_split_modules or []
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    return ModelShape(
        parameters=sum(weight.numel() for weight in model.parameters()),
        largest_block=max(sum(weight.numel() for weight in block.parameters()) for block in blocks),
        layers=len(blocks),
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
        cache_values=len(blocks) * _cache_values_of_a_layer(config),
        cache_heads=1 if _has_latent_attention(config) else config.num_key_value_heads,
        quantisation=quantisation(config.to_dict()),
        positions=positions(config.to_dict()),
    )


def quantisation(settings: Mapping[str, Any]) -> str | None:
    """Return how the weights are quantised by a model's `config.json`, such as `fp8`; None if they are not."""
    config = settings.get("quantization_config") or settings.get("compression_config")
    return config.get("quant_method", "an unknown method") if config else None


def untrainable(path: str, method: str) -> str:
    """Say why a model with quantised weights is refused, and what to give instead."""
    return (
        f"the weights of model.path {path} are quantised ({method}) and can't be trained: "
        "give the same model with bfloat16 or float32 weights"
    )


def _values_in(file: Path) -> int:
    """Return how many numbers a file of weights holds, by its header."""
    with safe_open(file, framework="numpy") as tensors:
        return sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118 - no mapping


def _cache_values_of_a_layer(config: "PreTrainedConfig") -> int:
    if _has_latent_attention(config):
        return config.kv_lora_rank + config.qk_rope_head_dim
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_key_value_heads * head


def _has_latent_attention(config: "PreTrainedConfig") -> bool:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) caches a latent and a rotary key for all heads."""
    return bool(getattr(config, "kv_lora_rank", None))
