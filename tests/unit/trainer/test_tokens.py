# ruff: noqa: RUF001 - DeepSeek's control tokens have wide bars
"""What a model's tokens are, over the families of models that people train."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoConfig

from configs.errors import UserError
from tests.families import FAMILIES, build, edit
from trainer.model import tiny_policy
from trainer.model.tokens import ModelTokens, beyond_positions, copy_tokenizer, positions_in, read_tokenizer, tokens_of

each_family = pytest.mark.parametrize("family", FAMILIES)


@each_family
def test_u11_a_response_ends_at_every_eos_that_any_of_the_three_files_names(family: str, tmp_path: Path):
    made = FAMILIES[family]
    folder = build(family, tmp_path, weights=False)
    vocabulary = read_tokenizer(folder).get_vocab()

    ends = tokens_of(folder).ends

    assert ends[0] == vocabulary[made.eos]
    named = {made.eos, *made.config_ends, *(made.generation_ends or [])}
    assert sorted(ends) == sorted(vocabulary[token] for token in named)


def test_u11_a_token_is_an_end_though_only_the_tokenizer_names_it(tmp_path: Path):
    folder = build("deepseek", tmp_path, weights=False)
    edit(folder / "config.json", eos_token_id=0)

    tokenizer = read_tokenizer(folder)
    assert tokens_of(folder).ends == (tokenizer.token_to_id("<｜end▁of▁sentence｜>"), 0)


@pytest.mark.parametrize(
    "eos", ["<|eot_id|>", {"content": "<|eot_id|>", "lstrip": False, "__type": "AddedToken"}], ids=["text", "object"]
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_u11_the_tokenizer_s_eos_is_found_in_every_form(eos: Any, file: str, tmp_path: Path):
    folder = build("llama3", tmp_path, weights=False)
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    edit(folder / file, eos_token=eos)

    assert tokens_of(folder).ends == (read_tokenizer(folder).token_to_id("<|eot_id|>"),)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_u11_an_eos_that_only_a_configuration_names_is_enough(file: str, tmp_path: Path):
    folder = build("smollm2", tmp_path, weights=False)
    for name in ("config.json", "generation_config.json"):
        edit(folder / name, eos_token_id=2 if name == file else None)
    edit(folder / "tokenizer_config.json", eos_token=None)

    assert tokens_of(folder).ends == (2,)


def test_u11_without_any_eos_the_files_to_set_it_in_are_named(tmp_path: Path):
    folder = build("smollm2", tmp_path, weights=False)
    for name in ("config.json", "generation_config.json"):
        edit(folder / name, eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token="<|no such token|>")

    with pytest.raises(
        UserError, match=r"names no token that ends a response: set eos_token in tokenizer_config\.json"
    ):
        tokens_of(folder)


@each_family
def test_u12_rows_that_were_added_as_padding_are_no_tokens(family: str, tmp_path: Path):
    folder = build(family, tmp_path, weights=False)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]

    tokens = tokens_of(folder)

    assert tokens.unused(rows) == list(range(rows - FAMILIES[family].padded, rows))
    assert tokens.holds(range(rows - FAMILIES[family].padded))
    assert not tokens.holds([rows])
    assert not tokens.holds([0, -1])


def test_u12_a_hole_in_the_vocabulary_is_no_token(tmp_path: Path):
    Tokenizer(models.WordLevel({"a": 0, "b": 2, "</s>": 3}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    edit(tmp_path / "tokenizer_config.json", eos_token="</s>")
    edit(tmp_path / "config.json", eos_token_id=[1, 3, 5], vocab_size=6)

    tokens = tokens_of(tmp_path)

    assert tokens.ids == ((0, 1), (2, 4))
    assert tokens.unused(6) == [1, 4, 5]
    assert tokens.holds([0, 2, 3]) and not tokens.holds([1])
    assert tokens.ends == (3,)


def test_u12_a_token_that_the_model_has_no_row_for_is_none_of_its_tokens(tmp_path: Path):
    folder = build("deepseek", tmp_path, weights=False)
    edit(folder / "config.json", vocab_size=305)

    assert read_tokenizer(folder).token_to_id("</think>") == 305
    assert tokens_of(folder).ids == ((0, 305),)


def test_the_tiny_policy_has_no_row_without_a_token(tmp_path: Path):
    tiny_policy.build(tmp_path / "tiny")

    tokens = tokens_of(tmp_path / "tiny")

    assert tokens.unused(len(tiny_policy.VOCABULARY)) == []
    assert tokens.ends == (tiny_policy.EOS_ID,)


@each_family
def test_tokens_are_stored_as_json(family: str, tmp_path: Path):
    tokens = tokens_of(build(family, tmp_path, weights=False))

    assert ModelTokens.of(json.loads(json.dumps(asdict(tokens)))) == tokens


def test_a_folder_without_tokenizer_json_says_how_to_get_one(tmp_path: Path):
    with pytest.raises(UserError, match=r"has no tokenizer\.json: write one with `AutoTokenizer"):
        tokens_of(tmp_path)


def test_a_broken_tokenizer_is_named(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')

    with pytest.raises(UserError, match=r"tokenizer\.json can't be read as a tokenizer"):
        tokens_of(tmp_path)


@each_family
def test_u10_the_files_of_a_tokenizer_are_copied_byte_by_byte(family: str, tmp_path: Path):
    folder = build(family, tmp_path / "model", weights=False)
    (tmp_path / "copy").mkdir()

    copy_tokenizer(folder, tmp_path / "copy")

    copied = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert copied.keys() == {path.name for path in folder.iterdir()} - {"config.json"}
    assert all(content == (folder / name).read_bytes() for name, content in copied.items())


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "max_position_embeddings": 4096},
        {"model_type": "llama", "max_position_embeddings": 64, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"model_type": "llama", "max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
        {"model_type": "qwen2", "max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {
            **{"model_type": "llama", "max_position_embeddings": 8192},
            "rope_scaling": {
                **{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024},
                **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
            },
        },
        {"model_type": "gpt2", "n_positions": 777},
        {"model_type": "gemma3_text", "max_position_embeddings": 512},
    ],
    ids=lambda config: str(config.get("rope_scaling", {}).get("rope_type", config["model_type"])),
)
def test_u19_a_model_has_the_positions_that_the_engine_finds(config: dict[str, Any], tmp_path: Path):
    from sglang.srt.utils.hf_transformers import get_context_length

    (tmp_path / "config.json").write_text(json.dumps(config))

    assert positions_in(tmp_path) == get_context_length(AutoConfig.from_pretrained(tmp_path))


def test_u19_only_a_context_longer_than_the_positions_is_refused():
    assert beyond_positions("m", 4096, 4096) is None
    assert beyond_positions("m", 8192, None) is None
    assert beyond_positions("m", 8192, 4096) == (
        "model.context_length is 8192, but model.path m has 4096 positions: set model.context_length=4096 or less, and "
        "rollout.max_response_tokens below that"
    )
