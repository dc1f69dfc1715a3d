"""A character tokenizer that prepends BOS by itself, with a chat template that renders BOS too."""

import string
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<bos>", "<eos>", "<system>", "<user>", "<assistant>", "<think>", "</think>", "<answer>", "</answer>"]
TEMPLATE = (
    "<bos>{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    alphabet = string.ascii_letters + string.digits + " +-=?.,"
    vocabulary = {token: i for i, token in enumerate(["<unk>", *SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<eos>"
    )
    fast.chat_template = template
    return fast


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(TEMPLATE)


@pytest.fixture
def model_dir(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def bare_model_dir(tmp_path: Path) -> Path:
    """A tokenizer without a chat template."""
    build_tokenizer(None).save_pretrained(tmp_path / "bare")
    return tmp_path / "bare"
