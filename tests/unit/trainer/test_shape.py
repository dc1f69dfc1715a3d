from collections.abc import Mapping
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from configs.errors import UserError
from trainer.model import tiny_policy
from trainer.model.shape import KNOWN, model_shape, parameters_of, shape_of

QWEN3 = {
    **{"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936},
    "max_position_embeddings": 40_960,
}

CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "smollm2": {
        **{"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30},
        **{"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152, "tie_word_embeddings": True},
        "max_position_embeddings": 8192,
    },
    "Qwen/Qwen2.5-0.5B-Instruct": {
        **{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24},
        **{"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True},
    },
    "Qwen/Qwen3-1.7B": {
        **QWEN3,
        **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-8B": {
        **QWEN3,
        **{"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32},
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-32B": {
        **QWEN3,
        **{"hidden_size": 5120, "intermediate_size": 25_600, "num_hidden_layers": 64, "num_attention_heads": 64},
        "tie_word_embeddings": False,
    },
    "meta-llama/Llama-3.1-70B-Instruct": {
        **{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80},
        **{"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128_256, "tie_word_embeddings": False},
        "max_position_embeddings": 131_072,
    },
    "deepseek-ai/DeepSeek-R1": {
        **{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18_432, "num_hidden_layers": 61},
        **{"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8},
        **{"first_k_dense_replace": 3, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129_280},
        **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
        **{"v_head_dim": 128, "tie_word_embeddings": False, "quantization_config": {"quant_method": "fp8"}},
        "max_position_embeddings": 163_840,
    },
}
"""The `config.json` of the models that are known, as far as it decides their size."""


@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_a_known_model_has_the_shape_that_its_configuration_gives(path: str):
    settings = dict(CONFIGURATIONS[path])

    assert KNOWN[path] == shape_of(AutoConfig.for_model(settings.pop("model_type"), **settings))


def test_the_tiny_policy_has_the_shape_that_is_known():
    assert KNOWN["tiny"] == shape_of(tiny_policy.config())
    assert KNOWN.keys() == CONFIGURATIONS.keys() | {"tiny"}


def test_parameters_of_a_folder_are_counted_by_the_headers_of_its_files(tmp_path):
    tiny_policy.build(tmp_path / "model")

    assert parameters_of(str(tmp_path / "model")) == KNOWN["tiny"].parameters
    assert parameters_of(str(tmp_path)) is None
    assert parameters_of("some/model") is None


@pytest.mark.parametrize(
    ("path", "billions"),
    [
        # The sizes that the models' makers state.
        ("smollm2", 0.1345),
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.494),
        ("Qwen/Qwen3-8B", 8.19),
        ("meta-llama/Llama-3.1-70B-Instruct", 70.6),
        ("deepseek-ai/DeepSeek-R1", 671.0),
    ],
)
def test_parameters_are_counted_as_their_makers_state(path: str, billions: float):
    assert model_shape(path).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


def test_the_cache_of_grouped_heads_holds_keys_and_values_of_each():
    # 36 layers, 8 heads of 128, a key and a value
    assert model_shape("Qwen/Qwen3-8B").cache_values == 36 * 2 * 8 * 128


def test_the_cache_of_latent_attention_holds_one_latent_that_can_not_be_divided():
    shape = model_shape("deepseek-ai/DeepSeek-R1")

    assert (shape.cache_values, shape.cache_heads) == (61 * (512 + 64), 1)


def test_quantised_weights_are_told_from_plain_ones(tmp_path):
    config = tiny_policy.config()
    config.quantization_config = {"quant_method": "awq"}
    config.save_pretrained(tmp_path)

    assert model_shape(str(tmp_path)).quantisation == "awq"
    assert model_shape("deepseek-ai/DeepSeek-R1").quantisation == "fp8"
    assert model_shape("Qwen/Qwen3-8B").quantisation is None


def test_a_local_folder_is_counted_from_its_configuration_alone(tmp_path):
    tiny_policy.config().save_pretrained(tmp_path)

    real = AutoModelForCausalLM.from_config(tiny_policy.config())
    assert model_shape(str(tmp_path)).parameters == sum(weight.numel() for weight in real.parameters())
    assert model_shape(str(tmp_path)) == model_shape("tiny")


def test_a_model_that_is_not_here_is_refused_with_what_to_do():
    with pytest.raises(UserError, match=r"model.path some/model: .* local folder"):
        model_shape("some/model")
