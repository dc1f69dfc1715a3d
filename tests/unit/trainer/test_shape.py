import pytest
from transformers import AutoModelForCausalLM

from configs.errors import UserError
from trainer.model import tiny_policy
from trainer.model.shape import model_shape


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
