import copy
import json
from collections.abc import Sequence
from math import cos, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    RecurrentGemmaConfig,
)

from configs.errors import UserError
from tests.families import FAMILIES, build, edit
from trainer.batches.collation import collate
from trainer.batches.packing import PromptResponse
from trainer.model import policy, scoring
from trainer.model.policy import Policy
from trainer.model.tokens import tokens_of


class Bigram(nn.Module):
    """A language model that looks up the next token's probabilities [V, V] by the last token."""

    def __init__(self, probabilities: Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(len(probabilities), len(probabilities), bias=False)
        self.head.weight.data = probabilities.log().T

    def set_attn_implementation(self, name: str) -> None:
        pass  # it attends to nothing

    def base_model(self, input_ids: Tensor, **options: object) -> SimpleNamespace:
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


# Every pair of a prompt and a response, in groups of unequal sizes; one response is empty.
PROMPTS = [[1, 2, 3, 4, 5], [6], [1, 2]]
RESPONSES = [[3, 4, 5, 6, 7, 8, 9], [5], [], [2, 2, 2], [8, 1]]
SEQUENCES = [(prompt, response) for prompt in PROMPTS for response in RESPONSES][:-2]
TEMPERATURE = 0.7


def tiny(config_class: type[PreTrainedConfig], **options: Any) -> PreTrainedModel:
    """A random model with two layers, in evaluation mode."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 20,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "initializer_range": 0.5,
    }
    return AutoModelForCausalLM.from_config(config_class(**sizes | options)).eval()


def naive(model: PreTrainedModel, sequences: Sequence[PromptResponse]) -> Tensor:
    """Log-probs of all response tokens [N], by the model's own forward pass on one sequence at a time."""
    parts = []
    for prompt, response in sequences:
        logits = cast(Any, model)(torch.tensor([prompt + response])).logits[0]
        logprobs = (logits / TEMPERATURE).log_softmax(-1)[len(prompt) - 1 : -1]
        parts.append(logprobs[range(len(response)), response])
    return torch.cat(parts)


def weighted_gradient(model: PreTrainedModel, logprobs: Tensor, weights: Tensor) -> Tensor:
    """Flat gradient of the weighted sum of the log-probs."""
    gradients = torch.autograd.grad((logprobs * weights).sum(), list(model.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


def weights_of(sequences: Sequence[PromptResponse]) -> Tensor:
    """A weight of each response token [N] that doesn't depend on where its sequence stands."""
    return torch.tensor(
        [
            cos(len(prompt) + 7 * position + token)
            for prompt, response in sequences
            for position, token in enumerate(response)
        ],
        dtype=torch.float64,
    )


@pytest.fixture(scope="module", params=[LlamaConfig, GPT2Config])
def doubles(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, Policy]:
    """A model in float64 for its own forward pass, and a policy with a copy of it."""
    model = tiny(request.param).double()
    return model, Policy(copy.deepcopy(model), TEMPERATURE, "float32")


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(len(SEQUENCES))), parts=st.integers(1, len(SEQUENCES)), chunk=st.integers(1, 60))
def test_log_probs_and_gradients_are_exact_under_any_packing_sharing_splitting_order_and_chunks(
    doubles: tuple[PreTrainedModel, Policy], order: list[int], parts: int, chunk: int
):
    model, policy_ = doubles
    logprobs: dict[int, Tensor] = {}
    gradient = torch.zeros(1, dtype=torch.float64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scoring.CHUNK_BYTES, "cpu", chunk * 20 * 4)
        for part in (order[start::parts] for start in range(parts)):  # in the last case, each sequence is alone
            sequences = [SEQUENCES[index] for index in part]
            tokens = collate(sequences)
            values = policy_(tokens)[0][tokens.response_mask]
            gradient = gradient + weighted_gradient(policy_.model, values, weights_of(sequences))
            lengths = [len(response) for _, response in sequences]
            logprobs |= dict(zip(part, values.detach().split(lengths), strict=True))

    naive_logprobs = naive(model, SEQUENCES)
    naive_gradient = weighted_gradient(model, naive_logprobs, weights_of(SEQUENCES))
    ours = torch.cat([logprobs[index] for index in range(len(SEQUENCES))])
    torch.testing.assert_close(ours, naive_logprobs.detach(), atol=1e-6, rtol=0)
    assert (gradient - naive_gradient).norm() / naive_gradient.norm() < 1e-6


STANDARD = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {"head_dim": 8, "tie_word_embeddings": True}),
    "mistral with a window of 3 tokens": (MistralConfig, {"sliding_window": 3, "head_dim": 8}),
    "gemma 3 with windows in every other layer": (
        Gemma3TextConfig,
        {"sliding_window": 3, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt-2 with learned positions": (GPT2Config, {}),
    "mixture of experts": (
        Qwen3MoeConfig,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 8},
    ),
}


@pytest.mark.parametrize(("config_class", "options"), STANDARD.values(), ids=STANDARD)
def test_log_probs_and_gradients_agree_with_the_full_logits_of_standard_architectures(
    config_class: type[PreTrainedConfig], options: dict[str, Any]
):
    model = tiny(config_class, **options)
    tokens = collate(SEQUENCES)
    weights = weights_of(SEQUENCES).float()

    packed = Policy(copy.deepcopy(model), TEMPERATURE, "float32")
    logprobs = packed(tokens)[0][tokens.response_mask]

    naive_logprobs = naive(model, SEQUENCES)
    torch.testing.assert_close(logprobs, naive_logprobs, atol=1e-5, rtol=0)
    gradient = weighted_gradient(packed.model, logprobs, weights)
    naive_gradient = weighted_gradient(model, naive_logprobs, weights)
    assert (gradient - naive_gradient).norm() / naive_gradient.norm() < 1e-5


def test_the_same_call_gives_the_same_bits(policy_dir: Path):
    tokens = collate(SEQUENCES)
    loaded = policy.load(policy_dir, temperature=1.0, dtype="float32")

    def call() -> tuple[Tensor, Tensor]:
        logprobs = loaded(tokens)[0][tokens.response_mask]
        return logprobs, weighted_gradient(loaded.model, logprobs, weights_of(SEQUENCES))

    assert all(torch.equal(first, again) for first, again in zip(call(), call(), strict=True))


def test_values_of_tokens_that_are_not_responses_are_zero(policy_dir: Path):
    tokens = collate([([1], [2, 3]), ([1], [2])])

    for rows in policy.load(policy_dir, temperature=1.0, dtype="float32")(tokens):
        assert (rows != 0).tolist() == [[True, True], [True, False]]


def test_hidden_states_are_those_that_predict_the_response_tokens(policy_dir: Path):
    model = AutoModelForCausalLM.from_pretrained(policy_dir)
    prompt, response = [1, 2, 3], [4, 5, 6]
    expected = model.model(torch.tensor([prompt + response])).last_hidden_state[0, 2:5]

    actual = policy.load(policy_dir, temperature=1.0, dtype="float32").hidden_states(collate([(prompt, response)]))

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def test_gradient_checkpointing_of_the_model_s_layers_changes_no_gradient():
    tokens, weights = collate(SEQUENCES), weights_of(SEQUENCES)
    plain = Policy(tiny(LlamaConfig), TEMPERATURE, "float32")
    expected = weighted_gradient(plain.model, plain(tokens)[0][tokens.response_mask], weights)

    plain.model.gradient_checkpointing_enable()
    plain.model.train()  # it has no dropout
    actual = weighted_gradient(plain.model, plain(tokens)[0][tokens.response_mask], weights)

    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)


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


@pytest.mark.parametrize("family", FAMILIES)
def test_u12_log_probs_and_gradients_are_those_over_the_tokens_of_the_tokenizer(family: str, tmp_path: Path):
    folder = build(family, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(folder)
    real = model.config.vocab_size - FAMILIES[family].padded
    prompt, response = [1, 2, real - 1], [5, real - 2, 7]
    logits = model(torch.tensor([prompt + response])).logits[0, 2:-1, :real] / TEMPERATURE
    expected = logits.log_softmax(-1)[range(3), response]
    entropies = torch.distributions.Categorical(logits=logits).entropy()

    loaded = policy.load(folder, temperature=TEMPERATURE, dtype="float32")
    logprobs, entropy = loaded(collate([(prompt, response)]))

    torch.testing.assert_close(logprobs[0], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy[0], entropies, atol=1e-5, rtol=0)
    weights = torch.tensor([1.0, -2.0, 3.0])
    naive_gradient = weighted_gradient(model, expected, weights)
    gradient = weighted_gradient(loaded.model, logprobs[0], weights)
    assert (gradient - naive_gradient).norm() / naive_gradient.norm() < 1e-5


def test_u12_where_every_row_is_a_token_no_bit_changes(policy_dir: Path):
    tokens = collate([(prompt, response) for prompt, response in SEQUENCES if response])
    loaded = policy.load(policy_dir, temperature=TEMPERATURE, dtype="float32")
    unmasked = Policy(AutoModelForCausalLM.from_pretrained(policy_dir).eval(), TEMPERATURE, "float32")

    ours, theirs = loaded(tokens), unmasked(tokens)

    assert all(torch.equal(own, their) for own, their in zip(ours, theirs, strict=True))
    gradients = [
        torch.autograd.grad(out[0].sum(), list(of.parameters())) for out, of in ((ours, loaded), (theirs, unmasked))
    ]
    assert all(torch.equal(own, their) for own, their in zip(*gradients, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_u10_tokenizer_and_generation_config_are_saved_as_they_are(family: str, tmp_path: Path):
    source = build(family, tmp_path / "source")

    policy.save(policy.load(source, temperature=1.0, dtype="float32"), source, tmp_path / "out")
    policy.save(policy.load(tmp_path / "out", temperature=1.0, dtype="float32"), tmp_path / "out", tmp_path / "again")

    for name in {file.name for file in source.iterdir()} - {"config.json", "model.safetensors"}:
        assert (tmp_path / "again" / name).read_bytes() == (source / name).read_bytes()
    assert {file.name for file in (tmp_path / "again").iterdir()} == {file.name for file in source.iterdir()}
    assert tokens_of(tmp_path / "again") == tokens_of(source)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
        {"do_sample": False, "top_p": 0.8},
        {"num_beams": 1, "early_stopping": True},
        {"repetition_penalty": 1.1, "a_setting_of_later": 3, "eos_token_id": [302, 300]},
        {"temperature": 0.0, "do_sample": True, "pad_token_id": -1},
    ],
    ids=["sampling without do_sample", "top_p without it", "beams", "unknown settings", "out of range"],
)
def test_u15_a_generation_config_that_transformers_refuses_to_save_is_kept(settings: dict[str, Any], tmp_path: Path):
    source = build("qwen2.5", tmp_path / "source")
    (source / "generation_config.json").write_text(json.dumps(settings))

    policy.save(policy.load(source, temperature=1.0, dtype="float32"), source, tmp_path / "out")

    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == settings


def test_u15_sampling_settings_in_the_model_s_configuration_stop_no_save(tmp_path: Path):
    source = build("smollm2", tmp_path / "source")
    edit(source / "config.json", temperature=0.6, top_p=0.9, do_sample=False)

    policy.save(policy.load(source, temperature=1.0, dtype="float32"), source, tmp_path / "out")

    assert policy.load(tmp_path / "out", temperature=1.0, dtype="float32")


def layer_added(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {name.replace("layers.1", "layers.2"): value.clone() for name, value in state.items()}


MISFITS = {
    "all with a prefix": (
        lambda state: {f"policy.{name}": value for name, value in state.items()},
        r"(\d+) missing \(lm_head\.weight, .*\1 of no place in it \(policy\.lm_head\.weight",
    ),
    "one tensor less": (
        lambda state: {name: value for name, value in state.items() if name != "model.norm.weight"},
        r"1 missing \(model\.norm\.weight\)",
    ),
    "no output layer": (
        lambda state: {name: value for name, value in state.items() if name != "lm_head.weight"},
        r"1 missing \(lm_head\.weight\)",
    ),
    "another shape": (
        lambda state: state | {"model.norm.weight": torch.ones(8)},
        r"1 of another shape \(model\.norm\.weight\)",
    ),
    "a layer too many": (layer_added, r"12 of no place in it \(model\.layers\.2\.input_layernorm\.weight"),
    "a head of another task": (
        lambda state: state | {"v_head.summary.weight": torch.ones(1, 16)},
        r"1 of no place in it \(v_head\.summary\.weight\)",
    ),
}


@pytest.mark.parametrize(("change", "told"), MISFITS.values(), ids=MISFITS)
def test_u18_weights_that_do_not_fit_their_model_are_refused_with_the_names(change: Any, told: str, tmp_path: Path):
    folder = build("qwen2.5", tmp_path)
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(UserError, match=rf"don't fit its config\.json, a Qwen2ForCausalLM: .*{told}"):
        policy.load(folder, temperature=1.0, dtype="float32")


@pytest.mark.parametrize("content", [None, b"", b"cut off"])
def test_u18_weights_that_can_not_be_read_are_refused_in_a_line(content: bytes | None, tmp_path: Path):
    folder = build("qwen2.5", tmp_path)
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(folder / "model.safetensors"), "part-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    if content is not None:
        (folder / "part-1.safetensors").write_bytes(content)

    with pytest.raises(UserError, match="can't be read: "):
        policy.load(folder, temperature=1.0, dtype="float32")


def test_u18_names_that_transformers_knows_how_to_read_fit(tmp_path: Path):
    folder = build("qwen2.5", tmp_path)
    state = load_file(folder / "model.safetensors")
    expected = policy.load(folder, temperature=1.0, dtype="float32").state_dict()
    old = {name.removeprefix("model."): value for name, value in state.items()}
    save_file(old | {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}, folder / "model.safetensors")

    loaded = policy.load(folder, temperature=1.0, dtype="float32").state_dict()

    assert all(torch.equal(value, expected[name]) for name, value in loaded.items())


UNSUPPORTED = {
    "soft-capped logits": (
        Gemma2Config,
        {"final_logit_softcapping": 2.0, "attn_logit_softcapping": None},
        "Gemma2ForCausalLM changes its logits after the output layer",
    ),
    "soft-capped attention": (
        Gemma2Config,
        {"final_logit_softcapping": None},
        "Gemma2Attention uses softcap in its attention",
    ),
    "recurrent layers": (MambaConfig, {}, "MambaForCausalLM has layers of type linear_attention"),
    "recurrent layers that the configuration does not name so": (
        RecurrentGemmaConfig,
        {"lru_width": 16, "attention_window_size": 8},
        "RecurrentGemmaForCausalLM can't be packed: .* as recurrent layers don't",
    ),
    "attention sinks": (
        GptOssConfig,
        {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8},
        "GptOssAttention uses s_aux in its attention",
    ),
    "attention of its own": (BloomConfig, {}, "BloomForCausalLM has an attention of its own"),
}


@pytest.mark.parametrize(("config_class", "options", "reason"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_an_architecture_that_can_not_be_packed_is_refused_with_the_reason(
    config_class: type[PreTrainedConfig], options: dict[str, Any], reason: str, tmp_path: Path
):
    tiny(config_class, **options).save_pretrained(tmp_path)

    with pytest.raises(UserError, match=f"{reason}.*choose another architecture"):
        policy.load(tmp_path, temperature=1.0, dtype="float32")
