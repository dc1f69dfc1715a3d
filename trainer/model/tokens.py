"""What a model's tokens are, by the files of its folder. Read here and nowhere else, without PyTorch or transformers.

Preparation, the engines' requests, the learner and the plan ask this module, so that they can't disagree.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from configs.errors import UserError

TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
_SETTINGS, _SPECIAL = "tokenizer_config.json", "special_tokens_map.json"
_COPIED = (
    *(TOKENIZER, _SETTINGS, _SPECIAL, GENERATION, "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt"),
    *("*.jinja", "additional_chat_templates/*.jinja", "*.model", "*.tiktoken", "tekken.json"),
)
_CONTEXT = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
"""Where SGLang looks for the longest context, in its order (its utils/hf_transformers/common.py, 0.5.23)."""

Range = tuple[int, int]


@dataclass(frozen=True)
class ModelTokens:
    """The tokens of a model.

    Attributes:
        ids: the ids that are tokens, as ranges (first, one past the last) in order. The output layer may have more
            rows, because it was padded: those are no tokens, and must never be sampled or take a share of a softmax.
        ends: the ids that end a response, as tokenizer, generation config and config name them, in this order. A
            response that is written, as a demonstration is, ends with the first.
    """

    ids: tuple[Range, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "ModelTokens":
        """Return what `dataclasses.asdict` and JSON made of the tokens."""
        return cls(tuple((first, past) for first, past in stored["ids"]), tuple(stored["ends"]))

    def holds(self, ids: Iterable[int]) -> bool:
        """Tell whether all of some ids are tokens."""
        return all(index in self for index in ids)

    def __contains__(self, index: object) -> bool:
        """Tell whether an id is one of a token."""
        return isinstance(index, int) and any(first <= index < past for first, past in self.ids)

    def unused(self, rows: int) -> list[int]:
        """Return which of an output layer's `rows` are no tokens; empty for most models."""
        return sorted(set(range(rows)).difference(*(range(*part) for part in self.ids)))


def tokens_of(folder: Path) -> ModelTokens:
    """Read the tokens of a model in Hugging Face format.

    Raises:
        UserError: there is no tokenizer.json that can be read, or nothing names a token that ends a response.
    """
    tokenizer = read_tokenizer(folder)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    config = _read(folder / "config.json")
    # Some tokenizers have tokens that their model has no row for, such as that of an image.
    rows = _setting(config, "vocab_size")
    ids = sorted(index for index in set(vocabulary.values()) if rows is None or index < rows)
    named = [
        vocabulary.get(_text(_named(folder, "eos_token")) or ""),
        *_numbers(_read(folder / GENERATION).get("eos_token_id")),
        *_numbers(_setting(config, "eos_token_id")),
    ]
    known = set(ids)
    ends = tuple(dict.fromkeys(cast(int, end) for end in named if end in known))
    if not ends:
        raise UserError(
            f"{folder} names no token that ends a response: set eos_token in {_SETTINGS}, or eos_token_id in "
            f"{GENERATION} or config.json, to a token of its {TOKENIZER}"
        )
    return ModelTokens(tuple(_ranges(ids)), ends)


def read_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer that `tokenizer.json` describes: the one with which the model was trained.

    Raises:
        UserError: there is none, or it can't be read.
    """
    path = folder / TOKENIZER
    if not path.is_file():
        raise UserError(
            f"{folder} has no {TOKENIZER}: write one with "
            f"`AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)`, and look at what it encodes"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises bare exceptions.
        raise UserError(f"{path} can't be read as a tokenizer: {error}") from error


def named_ends(folder: Path) -> str:
    """Name the tokens that end a response, with their ids."""
    tokenizer = read_tokenizer(folder)
    return ", ".join(f"{tokenizer.id_to_token(end)} ({end})" for end in tokens_of(folder).ends)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the files of tokenizer and generation to another folder as they are. A loader might write others."""
    for pattern in _COPIED:
        for path in source.glob(pattern):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)


def positions(config: Mapping[str, Any]) -> int | None:
    """Return the longest context by a model's `config.json`, as SGLang derives it; None where it does not say."""
    scaling = _setting(config, "rope_scaling") or _setting(config, "rope_parameters") or {}
    # Other scalings keep the number that they had before, in `original_max_position_embeddings`.
    scaled = scaling.get("rope_type", scaling.get("type")) in ("linear", "dynamic")
    factor = scaling.get("factor", 1) if scaled else 1
    # GPT-2's configuration has a name of its own.
    longest = next((value for key in (*_CONTEXT, "n_positions") if (value := _setting(config, key))), None)
    return int(longest * factor) if longest else None


def positions_in(folder: Path) -> int | None:
    """Return the longest context of a model in a folder; None where it does not say."""
    return positions(_read(folder / "config.json"))


def beyond_positions(path: str, context_length: int, longest: int | None) -> str | None:
    """Say what is wrong with a context that is longer than a model has positions; None where nothing is."""
    if longest is None or context_length <= longest:
        return None
    return (
        f"model.context_length is {context_length}, but model.path {path} has {longest} positions: set "
        f"model.context_length={longest} or less, and rollout.max_response_tokens below that"
    )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}") from error


def _setting(config: Mapping[str, Any], key: str) -> Any:
    """Return a setting of the language model. A model of several kinds of input has a section for it."""
    text = config.get("text_config")
    return text[key] if isinstance(text, dict) and text.get(key) is not None else config.get(key)


def _named(folder: Path, role: str) -> Any:
    """Return the token that a tokenizer's files name for a role such as `eos_token`."""
    return _read(folder / _SETTINGS).get(role) or _read(folder / _SPECIAL).get(role)


def _text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _numbers(ids: int | list[int] | None) -> list[int]:
    return [ids] if isinstance(ids, int) else list(ids or [])


def _ranges(ids: Iterable[int]) -> Iterator[Range]:
    for _, run in groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0]):
        members = [index for _, index in run]
        yield members[0], members[-1] + 1
