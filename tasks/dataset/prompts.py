"""From questions to token ids, once and for all: what is stored here is what the engine and the learner get."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from configs.errors import UserError
from tasks.dataset.question import Question


def load_tokenizer(model_dir: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model in Hugging Face format.

    Raises:
        UserError: there is none, or it has no chat template or no end-of-sequence token.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"model.path: no tokenizer can be loaded from {model_dir}: {error}") from error
    if tokenizer.chat_template is None:
        raise UserError(
            f"the tokenizer of {model_dir} has no chat template: choose an instruction-tuned model in model.path, "
            "or put a chat_template.jinja into that folder"
        )
    if tokenizer.eos_token_id is None:
        raise UserError(f"the tokenizer of {model_dir} names no eos_token: set it in its tokenizer_config.json")
    return tokenizer


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question], system_prompt: str | None
) -> list[list[int]]:
    """Render each question by the chat template, up to where the assistant begins, and tokenise it.

    The template alone decides about special tokens: nothing is added to what it renders, so a BOS is not doubled.
    Returns one list of ids a question.
    """
    if not questions:
        return []
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    conversations = [[*system, {"role": "user", "content": question.text}] for question in questions]
    try:
        texts = tokenizer.apply_chat_template(conversations, add_generation_prompt=True, tokenize=False)
    except TemplateError as error:
        raise UserError(f"data.system_prompt: the model's chat template refuses the messages: {error}") from error
    return _encode(tokenizer, cast(list[str], texts))


def encode_responses(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Tokenise responses as a model would emit them: no special tokens added but the EOS that ends each."""
    return [[*response, cast(int, tokenizer.eos_token_id)] for response in _encode(tokenizer, texts)]


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    return cast(list[list[int]], tokenizer(list(texts), add_special_tokens=False)["input_ids"]) if texts else []
