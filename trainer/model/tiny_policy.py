"""A policy that is small enough to learn arithmetic on a laptop in minutes, in the standard Hugging Face format."""

import string
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from trainer.files import written_at_once

ALPHABET = string.digits + " +-*/=?" + string.ascii_lowercase + ".,:;!()'\"\n"
CONTROL_TOKENS = ["<pad>", "<eos>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>"]
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
"""Marks that belong to the text: decoding keeps them even where control tokens are skipped."""

VOCABULARY = {token: index for index, token in enumerate([*CONTROL_TOKENS, *TAGS, *ALPHABET])}
PAD_ID, EOS_ID = VOCABULARY["<pad>"], VOCABULARY["<eos>"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}<eos>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SEED = 0


def build(folder: Path) -> None:
    """Write the untrained policy to `folder`, at once. Its content is the same each time."""
    with written_at_once(folder) as temporary:
        build_tokenizer().save_pretrained(temporary)
        build_model().save_pretrained(temporary)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token a character of `ALPHABET`; any other character is `<unk>`."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.Fuse()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def config() -> Qwen3Config:
    """The shape of the policy: 1.6 million parameters."""
    return Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        dtype="float32",
    )


def build_model() -> Qwen3ForCausalLM:
    """A Qwen3 model with random weights, drawn without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Qwen3ForCausalLM(config())
    model.generation_config = GenerationConfig(do_sample=True, eos_token_id=EOS_ID, pad_token_id=PAD_ID)
    return model
