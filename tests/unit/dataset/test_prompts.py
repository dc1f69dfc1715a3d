from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from configs.errors import UserError
from tasks.dataset.prompts import encode_prompts, encode_responses, load_tokenizer
from tasks.dataset.question import Question

QUESTION = Question(id="q", text="2+2=?", gold="4", source="test")


def test_a_prompt_ends_where_the_assistant_begins(tokenizer: PreTrainedTokenizerFast):
    [ids] = encode_prompts(tokenizer, [QUESTION], system_prompt=None)
    assert "".join(tokenizer.convert_ids_to_tokens(ids)) == "<bos><user>2+2=?<assistant>"


def test_a_system_prompt_comes_first(tokenizer: PreTrainedTokenizerFast):
    [ids] = encode_prompts(tokenizer, [QUESTION], system_prompt="Be brief.")
    assert "".join(tokenizer.convert_ids_to_tokens(ids)) == "<bos><system>Be brief.<user>2+2=?<assistant>"


def test_there_is_one_bos_where_tokenizer_and_template_both_bring_one(tokenizer: PreTrainedTokenizerFast):
    bos = tokenizer.convert_tokens_to_ids("<bos>")
    assert tokenizer("2").input_ids[0] == bos
    [ids] = encode_prompts(tokenizer, [QUESTION], system_prompt=None)
    assert [i for i, token in enumerate(ids) if token == bos] == [0]


def test_a_response_has_no_bos_and_ends_with_eos(tokenizer: PreTrainedTokenizerFast):
    [ids] = encode_responses(tokenizer, ["<think></think><answer>4</answer>"])
    assert tokenizer.convert_ids_to_tokens(ids) == ["<think>", "</think>", "<answer>", "4", "</answer>", "<eos>"]


def test_a_tokenizer_without_chat_template_is_refused(bare_model_dir: Path):
    with pytest.raises(UserError, match=r"bare has no chat template: .*model\.path.*chat_template\.jinja"):
        load_tokenizer(bare_model_dir)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"model\.path: no tokenizer can be loaded from"):
        load_tokenizer(tmp_path)


def test_a_system_prompt_that_the_template_refuses_is_the_users_to_drop(tokenizer: PreTrainedTokenizerFast):
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(UserError, match=r"data\.system_prompt: .*no system role"):
        encode_prompts(tokenizer, [QUESTION], system_prompt="Be brief.")
