"""From questions to token ids, once and for all: what is stored here is what the engine and the learner get."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from configs.data import Data
from configs.errors import UserError
from tasks.records.question import Question

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN = "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
"""`data.chat_template: plain`: the messages' texts, each followed by a blank line, without roles."""


def load_tokenizer(model_dir: Path, chat_template: str | None = None) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a model in Hugging Face format.

    Args:
        model_dir: The model's folder.
        chat_template: Template in Jinja to use in place of the tokenizer's own.

    Raises:
        UserError: there is none, or it has no chat template or no end-of-sequence token.
    """
    from transformers import AutoTokenizer  # Seconds, and not needed where the prompts are found prepared.

    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"model.path: no tokenizer can be loaded from {model_dir}: {error}") from error
    tokenizer.chat_template = chat_template or tokenizer.chat_template
    if tokenizer.chat_template is None:
        raise UserError(
            f"the tokenizer of {model_dir} has no chat template: choose an instruction-tuned model in model.path, or "
            "set data.chat_template to `plain` (texts without roles, for base models) or to a .jinja file such as "
            "chat_template.jinja"
        )
    if tokenizer.eos_token_id is None:
        raise UserError(f"the tokenizer of {model_dir} names no eos_token: set it in its tokenizer_config.json")
    return tokenizer


def read_template(data: Data) -> str | None:
    """Return the chat template that the recipe gives; None is the tokenizer's own."""
    if data.chat_template in (None, "plain"):
        return PLAIN if data.chat_template else None
    try:
        return Path(data.chat_template).read_text()
    except OSError as error:
        raise UserError(f"data.chat_template {data.chat_template}: {error.strerror}") from None


def encode_prompts(
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[Question],
    system_prompt: str | None,
    template_settings: dict[str, Any] | None = None,
) -> list[list[int]]:
    """Render each question by the chat template, up to where the assistant begins, and tokenise it.

    The template decides about special tokens: nothing is added to what it renders, so a BOS is not doubled. Only where
    it renders no BOS and the tokenizer begins every text with one is it put in front. The system prompt goes before a
    question that brings no system message of its own. Returns one list of ids a question.
    """
    if not questions:
        return []
    conversations = [_with_system(question.messages, system_prompt) for question in questions]
    hint = "data.system_prompt: " if system_prompt else ""
    texts = []
    for question, conversation in zip(questions, conversations, strict=True):
        try:
            texts.append(
                tokenizer.apply_chat_template(
                    conversation, add_generation_prompt=True, tokenize=False, **template_settings or {}
                )
            )
        except Exception as error:  # A template is a program: it may raise anything.
            what = str(error) or type(error).__name__
            raise UserError(f"{hint}{question.id}: the model's chat template refuses the messages: {what}") from error
    start = _start(tokenizer)
    encoded = _encode(tokenizer, cast(list[str], texts))
    return [ids if ids[: len(start)] == start else start + ids for ids in encoded]


def encode_responses(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    """Tokenise responses as a model would emit them: no special tokens added but the EOS that ends each."""
    return [[*response, cast(int, tokenizer.eos_token_id)] for response in _encode(tokenizer, texts)]


def _with_system(messages: list[dict[str, str]], system_prompt: str | None) -> list[dict[str, str]]:
    if not system_prompt or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system_prompt}, *messages]


def _start(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the BOS if the tokenizer itself begins every text with it."""
    first = cast(list[int], tokenizer("a")["input_ids"])[:1]
    return first if first == [tokenizer.bos_token_id] else []


def _encode(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    return cast(list[list[int]], tokenizer(list(texts), add_special_tokens=False)["input_ids"]) if texts else []
