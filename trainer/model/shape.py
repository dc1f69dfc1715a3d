"""How large a model is, without its weights: its configuration is built on PyTorch's `meta` device and counted."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from configs.errors import UserError
from trainer.model import tiny_policy
from trainer.model.quantisation import quantisation

_QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936}

KNOWN: Mapping[str, Mapping[str, Any]] = {
    "smollm2": {
        **{"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30},
        **{"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152, "tie_word_embeddings": True},
    },
    "Qwen/Qwen2.5-0.5B-Instruct": {
        **{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24},
        **{"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True},
    },
    "Qwen/Qwen3-1.7B": {
        **_QWEN3,
        **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-8B": {
        **_QWEN3,
        **{"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32},
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-32B": {
        **_QWEN3,
        **{"hidden_size": 5120, "intermediate_size": 25_600, "num_hidden_layers": 64, "num_attention_heads": 64},
        "tie_word_embeddings": False,
    },
    "meta-llama/Llama-3.1-70B-Instruct": {
        **{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80},
        **{"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128_256, "tie_word_embeddings": False},
    },
    "deepseek-ai/DeepSeek-R1": {
        **{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18_432, "num_hidden_layers": 61},
        **{"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8},
        **{"first_k_dense_replace": 3, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129_280},
        **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
        **{"v_head_dim": 128, "tie_word_embeddings": False, "quantization_config": {"quant_method": "fp8"}},
    },
}
"""The `config.json` of models that a plan can be made for without a download, as far as it decides their size, and
whether they can be trained."""


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
    """

    parameters: int
    largest_block: int
    layers: int
    hidden: int
    vocabulary: int
    cache_values: int
    cache_heads: int
    quantisation: str | None


def model_shape(path: str) -> ModelShape:
    """Return the shape of the recipe's `model.path`.

    Raises:
        UserError: the model is neither known here nor a local folder.
    """
    if path == "tiny":
        return shape_of(tiny_policy.config())
    if path in KNOWN:
        settings = dict(KNOWN[path])
        return shape_of(AutoConfig.for_model(settings.pop("model_type"), **settings))
    if (Path(path) / "config.json").is_file():
        return shape_of(AutoConfig.from_pretrained(path, local_files_only=True))
    raise UserError(
        f"model.path {path}: its size is not known before it is downloaded. Give a local folder with its config.json, "
        f"or plan with a model of about its size: {', '.join(KNOWN)}"
    )


def shape_of(config: PreTrainedConfig) -> ModelShape:
    """Build a model of a configuration without memory for its weights, and count."""
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
    )


def _cache_values_of_a_layer(config: PreTrainedConfig) -> int:
    if _has_latent_attention(config):
        return config.kv_lora_rank + config.qk_rope_head_dim
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_key_value_heads * head


def _has_latent_attention(config: PreTrainedConfig) -> bool:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) caches a latent and a rotary key for all heads."""
    return bool(getattr(config, "kv_lora_rank", None))
