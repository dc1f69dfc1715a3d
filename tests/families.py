# ruff: noqa: RUF001 - DeepSeek's control tokens have wide bars
"""Small models of the families that people train: their tokenizers, control tokens, chat templates and padding.

What is copied from the real ones is how they are made, not what they know: the kind of tokenizer, which tokens are
special, which file names which EOS, how a template begins and ends, and that the output layer has more rows than the
tokenizer has tokens. Nothing is downloaded.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.configuration_utils import PreTrainedConfig

CORPUS = [
    "What is 2 + 3?",
    "The answer is 5.",
    "What is 14 + 27? It is 41.",
    "user",
    "assistant",
    "system",
    "Let me think",
]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
LLAMA = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ bos_token }}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}<|eot_id|>"
    "{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
DEEPSEEK = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}<｜Assistant｜>"
    "{{ message.content }}{{ eos_token }}{% elif message.role == 'user' %}<｜User｜>{{ message.content }}"
    "{% else %}{{ message.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}{{ message.content }}"
    "{{ eos_token }}{% else %}[INST]{{ message.content }}[/INST]{% endif %}{% endfor %}"
)
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Family:
    """How a family's models are made.

    Attributes:
        kind: the class of its configuration.
        special: its control tokens, in order of their ids.
        template: its chat template.
        bos, eos: as its tokenizer names them.
        text_tokens: added tokens that belong to the text.
        tokenizer_class: what `tokenizer_config.json` names.
        config_ends, generation_ends: EOS tokens that `config.json` and `generation_config.json` name.
        padded: rows of the output layer beyond the tokenizer's tokens.
        date: settings with which the template writes the same on every day.
        pattern: how text is split before pairs of bytes are merged; None splits as GPT-2 does.
        metaspace: pieces of words as SentencePiece makes them, instead of bytes.
    """

    kind: type[PreTrainedConfig]
    special: list[str]
    template: str
    eos: str
    bos: str | None = None
    text_tokens: list[str] = field(default_factory=list)
    tokenizer_class: str = "PreTrainedTokenizerFast"
    config_ends: list[str] = field(default_factory=list)
    generation_ends: list[str] | None = None
    padded: int = 21
    date: dict[str, str] = field(default_factory=dict)
    pattern: str | None = None
    metaspace: bool = False


FAMILIES = {
    "llama3": Family(
        kind=LlamaConfig,
        special=[
            *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"),
            "<|eot_id|>",
        ],
        template=LLAMA,
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        config_ends=["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
        generation_ends=["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
        date={"date_string": "26 Jul 2024"},
    ),
    "qwen2.5": Family(
        kind=Qwen2Config,
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        text_tokens=["<tool_call>", "</tool_call>"],
        template=CHATML,
        eos="<|im_end|>",
        tokenizer_class="Qwen2Tokenizer",
        pattern=QWEN,
        config_ends=["<|im_end|>"],
        generation_ends=["<|im_end|>", "<|endoftext|>"],
    ),
    "qwen3": Family(
        kind=Qwen3Config,
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        text_tokens=["<tool_call>", "</tool_call>", "<think>", "</think>"],
        template=CHATML + "{% if add_generation_prompt %}" + THINKING + "{% endif %}",
        eos="<|im_end|>",
        tokenizer_class="Qwen2Tokenizer",
        pattern=QWEN,
        config_ends=["<|im_end|>"],
        generation_ends=["<|im_end|>", "<|endoftext|>"],
    ),
    "deepseek": Family(
        kind=LlamaConfig,
        special=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
        text_tokens=["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"],
        template=DEEPSEEK,
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        tokenizer_class="LlamaTokenizerFast",
        config_ends=["<｜begin▁of▁sentence｜>"],  # the file's mistake: only the tokenizer knows the EOS
    ),
    "mistral": Family(
        kind=MistralConfig,
        special=["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
        template=MISTRAL,
        bos="<s>",
        eos="</s>",
        tokenizer_class="LlamaTokenizerFast",
        config_ends=["</s>"],
        generation_ends=["</s>"],
        metaspace=True,
    ),
    "smollm2": Family(
        kind=LlamaConfig,
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        template=CHATML,
        bos="<|im_start|>",
        eos="<|im_end|>",
        tokenizer_class="GPT2Tokenizer",
        config_ends=["<|im_end|>"],
        generation_ends=["<|im_end|>"],
        padded=0,
    ),
}


def build(name: str, folder: Path, *, weights: bool = True, **config: Any) -> Path:
    """Write a small model of a family; settings of its `config.json` may differ."""
    family = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _metaspace(family) if family.metaspace else _byte_level(family)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = tokenizer.get_vocab()
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": family.tokenizer_class,
            "bos_token": family.bos,
            "eos_token": family.eos,
            "pad_token": family.eos,
            "clean_up_tokenization_spaces": False,
        },
    )
    (folder / "chat_template.jinja").write_text(family.template)
    ends = [ids[end] for end in family.config_ends]
    settings = {
        **{"vocab_size": len(ids) + family.padded, "hidden_size": 16, "intermediate_size": 16},
        **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8},
        **{"max_position_embeddings": 128, "eos_token_id": ends if len(ends) > 1 else ends[0]},
        "bos_token_id": ids[family.bos] if family.bos else None,
        **config,
    }
    model_config = family.kind(**settings)
    if weights:
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(model_config).save_pretrained(folder)
        (folder / "generation_config.json").unlink()
    else:
        model_config.save_pretrained(folder)
    if family.generation_ends is not None:
        _write(folder / "generation_config.json", {"eos_token_id": [ids[end] for end in family.generation_ends]})
    return folder


def edit(path: Path, **settings: Any) -> None:
    """Change settings of a JSON file; None takes one out."""
    read = json.loads(path.read_text()) if path.exists() else {}
    _write(path, {key: value for key, value in (read | settings).items() if value is not None})


def _byte_level(family: Family) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if family.pattern:
        pieces = pre_tokenizers.Split(Regex(family.pattern), "isolated")
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    return _with_added(tokenizer, family)


def _metaspace(family: Family) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    first = [*family.special, *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted({*"".join(CORPUS), *"0123456789", "▁"} - {" "})
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=360, special_tokens=first, initial_alphabet=letters)
    )
    # The bytes are pieces of the model, no added tokens.
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = []
    return _with_added(Tokenizer.from_str(json.dumps(described)), family)


def _with_added(tokenizer: Tokenizer, family: Family) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in family.special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in family.text_tokens])
    if family.bos and family.tokenizer_class != "GPT2Tokenizer":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{family.bos} $A", special_tokens=[(family.bos, tokenizer.token_to_id(family.bos))]
        )
    return tokenizer


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2))
