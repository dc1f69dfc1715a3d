from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from trainer.model import tiny_policy
from trainer.model.tiny_policy import ALPHABET, CONTROL_TOKENS, TAGS, build_tokenizer

TOKENIZER = build_tokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "policy"
    tiny_policy.build(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


def test_it_loads_as_a_standard_model_of_one_and_a_half_million_parameters(folder: Path):
    model = AutoModelForCausalLM.from_pretrained(folder)

    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert 1e6 < model.num_parameters() < 2e6
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == TOKENIZER.eos_token_id


def test_it_is_the_same_each_time(folder: Path, tmp_path: Path):
    tiny_policy.build(tmp_path / "again")

    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


@given(st.lists(st.sampled_from([*ALPHABET, *TAGS, *CONTROL_TOKENS])).map("".join))
def test_decoding_gives_back_what_was_encoded(text: str):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_a_saved_tokenizer_encodes_as_the_built_one(tokenizer: PreTrainedTokenizerBase):
    text = "<|user|>12+34=?<|assistant|><think>a b\n</think><answer>46</answer><eos>"

    assert tokenizer.encode(text) == TOKENIZER.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tags_are_text_and_survive_where_control_tokens_are_skipped(tokenizer: PreTrainedTokenizerBase):
    ids = tokenizer.encode("<think></think><answer>46</answer><eos><pad>")

    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think></think><answer>46</answer>"


def test_a_character_outside_of_the_alphabet_is_one_unknown_token(tokenizer: PreTrainedTokenizerBase):
    assert tokenizer.encode("1é2") == tokenizer.encode("1<unk>2")


def test_padding_and_end_are_two_tokens(tokenizer: PreTrainedTokenizerBase):
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_a_chat_is_laid_out_with_a_prompt_for_the_assistant(tokenizer: PreTrainedTokenizerBase):
    messages = [{"role": "system", "content": "add"}, {"role": "user", "content": "1+1=?"}]

    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    answered = tokenizer.apply_chat_template([*messages, {"role": "assistant", "content": "2"}], tokenize=False)

    assert prompt == "<|system|>add<|user|>1+1=?<|assistant|>"
    assert answered == "<|system|>add<|user|>1+1=?<|assistant|>2<eos>"
