from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from trainer import policy
from trainer.batches import collate
from trainer.policy import Policy, score


class Bigram(nn.Module):
    """A language model that looks up the next token's probabilities [V, V] by the last token."""

    def __init__(self, probabilities: Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(len(probabilities), len(probabilities), bias=False)
        self.head.weight.data = probabilities.log().T

    def base_model(self, input_ids: Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=nn.functional.one_hot(input_ids, len(self.head.weight)).float())

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def test_a_response_token_is_scored_by_the_token_before_it_and_the_first_by_the_last_prompt_token():
    probabilities = torch.full((4, 4), 0.1)
    probabilities[0, 1], probabilities[1, 2], probabilities[2, 3] = 0.1, 0.2, 0.4
    bigram = Policy(Bigram(probabilities), temperature=1.0, dtype="float32")  # pyright: ignore[reportArgumentType]

    # Rows don't sum to 1: the two scored ones are 0.1 + 0.1 + 0.2 + 0.1 = 0.5 and 0.1 + 0.1 + 0.1 + 0.4 = 0.7.
    logprobs, _ = bigram(collate([([0, 1], [2, 3])]))

    assert logprobs[0].tolist() == pytest.approx([log(0.2 / 0.5), log(0.4 / 0.7)])


@pytest.mark.parametrize(("temperature", "logprob"), [(0.6, -0.202573), (0.5, -0.142932), (1.0, -0.407606)])
def test_logits_are_divided_by_the_sampling_temperature(temperature: float, logprob: float):
    logprobs, _ = score(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), temperature)

    assert logprobs.item() == pytest.approx(logprob, abs=1e-6)


def test_log_probs_of_bfloat16_logits_are_float32():
    logits = torch.tensor([[10, 9.9, 0, -3]], dtype=torch.bfloat16)

    logprobs, _ = score(logits, torch.tensor([0]), 1.0)

    assert logprobs.dtype == torch.float32
    # 9.9 is 9.875 in bfloat16: -ln(1 + e^-0.125 + e^-10 + e^-13); a softmax in bfloat16 gives -0.632813.
    assert logprobs.item() == pytest.approx(-0.632624, abs=1e-6)


def test_log_probs_are_never_above_zero():
    logprobs, _ = score(torch.tensor([[1000.0, -1000.0], [3.0, -20.0]]), torch.tensor([0, 0]), 0.1)

    assert logprobs.max().item() <= 0


def test_entropy_is_that_of_the_distribution_at_the_temperature():
    _, entropy = score(torch.tensor([[0.0, 0.0], [log(9), 0.0]]), torch.tensor([0, 0]), 1.0)

    assert entropy.tolist() == pytest.approx([log(2), -(0.9 * log(0.9) + 0.1 * log(0.1))])


def test_padding_changes_no_log_prob_even_with_learned_positions(tmp_path: Path):
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)).save_pretrained(
        tmp_path
    )
    gpt2 = policy.load(tmp_path, temperature=1.0, dtype="float32")
    short, long = ([1, 2], [3, 4]), ([5] * 6, [6, 7, 8, 9])

    together, entropy = gpt2(collate([short, long]))
    alone, _ = gpt2(collate([short]))

    torch.testing.assert_close(together[0, :2], alone[0], atol=1e-5, rtol=0)
    assert together[0, 2:].tolist() == entropy[0, 2:].tolist() == [0, 0]


def test_log_probs_agree_with_the_model_s_full_logits(policy_dir: Path):
    model = AutoModelForCausalLM.from_pretrained(policy_dir)
    prompt, response = [1, 2, 3], [4, 5, 6]

    logprobs, _ = policy.load(policy_dir, temperature=0.7, dtype="float32")(collate([(prompt, response)]))

    full = (model(torch.tensor([prompt + response])).logits[0] / 0.7).log_softmax(-1)
    expected = torch.stack([full[2, 4], full[3, 5], full[4, 6]])
    torch.testing.assert_close(logprobs[0], expected, atol=1e-5, rtol=0)


def test_bfloat16_is_for_the_forward_pass_and_weights_stay_float32(policy_dir: Path):
    tokens = collate([([1, 2, 3], [4, 5, 6])])
    exact, _ = policy.load(policy_dir, temperature=1.0, dtype="float32")(tokens)

    half = policy.load(policy_dir, temperature=1.0, dtype="bfloat16")
    logprobs, _ = half(tokens)

    assert {parameter.dtype for parameter in half.parameters()} == {torch.float32}
    assert logprobs.dtype == torch.float32
    assert 0 < (logprobs - exact).abs().max().item() < 0.2


def embedding(model: PreTrainedModel) -> Tensor:
    return cast(nn.Embedding, model.get_input_embeddings()).weight


def test_saved_weights_are_those_in_memory_with_tied_ones_saved_once(policy_dir: Path, tmp_path: Path):
    trained = policy.load(policy_dir, temperature=1.0, dtype="float32")
    with torch.no_grad():
        embedding(trained.model).add_(1.0)

    policy.save(trained, policy_dir, tmp_path / "out")

    names = set(load_file(tmp_path / "out" / "model.safetensors"))
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    reloaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    expected = embedding(AutoModelForCausalLM.from_pretrained(policy_dir)) + 1.0
    assert torch.equal(embedding(reloaded), expected)
    assert torch.equal(reloaded.get_output_embeddings().weight, expected)


def test_a_saved_folder_has_all_that_an_engine_needs(policy_dir: Path, tmp_path: Path):
    policy.save(policy.load(policy_dir, temperature=1.0, dtype="float32"), policy_dir, tmp_path / "out")

    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= names


def test_an_architecture_that_changes_its_logits_after_the_output_layer_is_refused(tmp_path: Path):
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=1.0,
        final_logit_softcapping=2.0,
    )
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="Gemma2ForCausalLM changes its logits"):
        policy.load(tmp_path, temperature=1.0, dtype="float32")
