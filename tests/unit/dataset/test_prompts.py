from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from configs.data import Data
from configs.errors import UserError
from tasks.dataset.prompts import encode_prompts, encode_responses, load_tokenizer, read_template
from tasks.records.question import Question

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


def text(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return "".join(tokenizer.convert_ids_to_tokens(ids))


def test_messages_keep_their_roles_and_end_where_the_assistant_begins(tokenizer: PreTrainedTokenizerFast):
    earlier = '[{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": "2"}]'
    [ids] = encode_prompts(tokenizer, [replace(QUESTION, earlier=earlier)], system_prompt="Be brief.")
    assert text(tokenizer, ids) == "<bos><system>Be brief.<user>1+1=?<assistant>2<user>2+2=?<assistant>"


def test_a_system_message_of_its_own_stands_in_place_of_the_system_prompt(tokenizer: PreTrainedTokenizerFast):
    own = replace(QUESTION, earlier='[{"role": "system", "content": "Be long."}]')
    [ids] = encode_prompts(tokenizer, [own], system_prompt="Be brief.")
    assert text(tokenizer, ids) == "<bos><system>Be long.<user>2+2=?<assistant>"


def test_a_template_can_have_settings(tokenizer: PreTrainedTokenizerFast):
    tokenizer.chat_template = "<user>{{ messages[0].content }}<assistant>{{ '' if thinking else '<think></think>' }}"
    thinking = encode_prompts(tokenizer, [QUESTION], None, {"thinking": True})
    brief = encode_prompts(tokenizer, [QUESTION], None, {"thinking": False})
    assert text(tokenizer, thinking[0]) == "<bos><user>2+2=?<assistant>"
    assert text(tokenizer, brief[0]) == "<bos><user>2+2=?<assistant><think></think>"


def test_a_bos_that_the_template_leaves_out_is_put_in_front(tokenizer: PreTrainedTokenizerFast):
    tokenizer.chat_template = str(tokenizer.chat_template).removeprefix("<bos>")
    [ids] = encode_prompts(tokenizer, [QUESTION], system_prompt=None)
    assert text(tokenizer, ids) == "<bos><user>2+2=?<assistant>"


def test_no_bos_is_added_for_a_tokenizer_that_uses_none(tokenizer: PreTrainedTokenizerFast):
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, bos_token="<bos>", eos_token="<eos>")
    bare.backend_tokenizer.post_processor = processors.Sequence([])  # type: ignore[attr-defined]
    bare.chat_template = str(tokenizer.chat_template).removeprefix("<bos>")
    [ids] = encode_prompts(bare, [QUESTION], system_prompt=None)
    assert text(bare, ids) == "<user>2+2=?<assistant>"


def test_a_base_model_is_asked_in_plain_text(bare_model_dir: Path):
    tokenizer = load_tokenizer(bare_model_dir, read_template(Data(chat_template="plain")))
    [ids] = encode_prompts(tokenizer, [QUESTION], system_prompt="Add.")
    # The toy tokenizer has no newlines: a blank line is one <unk>.
    assert text(tokenizer, ids) == "<bos>Add.<unk>2+2=?<unk>"


def test_a_template_of_ones_own_takes_the_place_of_the_tokenizers(tmp_path: Path, model_dir: Path):
    path = tmp_path / "own.jinja"
    path.write_text("<bos><user>{{ messages[-1].content }}<think>")
    tokenizer = load_tokenizer(model_dir, read_template(Data(chat_template=str(path))))
    [ids] = encode_prompts(tokenizer, [QUESTION], system_prompt=None)
    assert text(tokenizer, ids) == "<bos><user>2+2=?<think>"


def test_a_missing_template_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"data\.chat_template .*none\.jinja: No such file"):
        read_template(Data(chat_template=str(tmp_path / "none.jinja")))


def test_a_tokenizer_without_template_names_the_option_to_set(bare_model_dir: Path):
    with pytest.raises(UserError, match=r"data\.chat_template to `plain`"):
        load_tokenizer(bare_model_dir, read_template(Data()))
