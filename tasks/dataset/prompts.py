"""From questions to token ids, once and for all: what is stored here is what the engine and the learner get."""

import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from configs.data import Data
from configs.errors import UserError
from tasks.records.question import Finding, Question
from trainer.model.tokens import read_tokenizer, tokens_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
PLAIN = "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
"""`data.chat_template: plain`: the messages' texts, each followed by a blank line, without roles."""


def load_tokenizer(model_dir: Path, chat_template: str | None = None) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a model in Hugging Face format, with the ids of its `tokenizer.json`.

    The class that `tokenizer_config.json` names is not taken: some build another tokenizer out of that file, which
    loses spaces.

    Args:
        model_dir: The model's folder.
        chat_template: Template in Jinja to use in place of the tokenizer's own.

    Raises:
        UserError: there is none, or it has no chat template, or no token ends a response.
    """
    from transformers import PreTrainedTokenizerFast  # Seconds, and not needed where the prompts are found prepared.

    try:
        raw = read_tokenizer(model_dir)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"model.path: no tokenizer can be loaded from {model_dir}: {error}") from error
    tokenizer.chat_template = chat_template or tokenizer.chat_template
    if tokenizer.chat_template is None:
        raise UserError(
            f"the tokenizer of {model_dir} has no chat template: choose an instruction-tuned model in model.path, or "
            "set data.chat_template to `plain` (texts without roles, for base models) or to a .jinja file such as "
            "chat_template.jinja"
        )
    tokenizer.eos_token = raw.id_to_token(tokens_of(model_dir).ends[0])
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
    day: date | None = None,
) -> list[list[int]]:
    """Render each question by the chat template and tokenise it: `render_prompts`, then `tokenise`."""
    return tokenise(tokenizer, render_prompts(tokenizer, questions, system_prompt, template_settings, day))


def render_prompts(
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[Question],
    system_prompt: str | None,
    template_settings: dict[str, Any] | None = None,
    day: date | None = None,
) -> list[str]:
    """Render each question by the chat template, up to where the assistant begins.

    The system prompt goes before a question that brings no system message of its own.

    Args:
        tokenizer: Its chat template counts.
        questions: What to render.
        system_prompt: `data.system_prompt`.
        template_settings: Variables of the template.
        day: What the template gets when it asks for the date of today.

    Raises:
        UserError: the template refuses a question, or asks for the date and there is none to give.
    """
    settings: dict[str, Any] = {"strftime_now": _clock(day), **(template_settings or {})}
    conversations = [_with_system(question.messages, system_prompt) for question in questions]
    hint = "data.system_prompt: " if system_prompt else ""
    texts = []
    for question, conversation in zip(questions, conversations, strict=True):
        try:
            texts.append(
                tokenizer.apply_chat_template(
                    conversation,
                    add_generation_prompt=True,
                    tokenize=False,
                    **settings,
                )
            )
        except UserError:
            raise
        except Exception as error:  # A template is a program: it may raise anything.
            what = str(error) or type(error).__name__
            raise UserError(f"{hint}{question.id}: the model's chat template refuses the messages: {what}") from error
    return cast(list[str], texts)


def tokenise(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of rendered prompts.

    The template decides about special tokens: nothing is added to what it renders, so a BOS is not doubled. Only where
    it renders no BOS and the tokenizer begins every text with one is it put in front.
    """
    if not texts:
        return []
    start = _start(tokenizer)
    return [ids if ids[: len(start)] == start else start + ids for ids in encode(tokenizer, texts)]


def encode(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    """Tokenise texts alone: no special tokens added."""
    return cast(list[list[int]], tokenizer(list(texts), add_special_tokens=False)["input_ids"]) if texts else []


def disagreements(
    model_dir: Path,
    questions: Sequence[Question],
    texts: Sequence[str],
    ids: Sequence[Sequence[int]],
) -> list[Finding]:
    """Compare the ids of prompts with those of transformers' own loader, and tell of each prompt that differs.

    Another tool that loads the model will take the loader's ids, and may have trained it on them.
    """
    from transformers import AutoTokenizer

    if not texts:
        return []
    try:
        other = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
        theirs = tokenise(other, texts)
    except Exception as error:  # What it can't load, it can't load otherwise.
        logger.info("AutoTokenizer does not load %s: %s", model_dir, error)
        return []
    found = [
        Finding.of(question, "AutoTokenizer reads the prompt otherwise", f"as {other.decode(their)!r}")
        for question, own, their in zip(questions, ids, theirs, strict=True)
        if list(own) != their
    ]
    if found:
        logger.warning(
            "of %d prompts, AutoTokenizer (%s) reads %d otherwise than tokenizer.json of %s, whose ids are taken: %s",
            *(len(texts), type(other).__name__, len(found), model_dir, found[0].detail),
        )
    return found


def encode_responses(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    """Tokenise responses as a model would emit them: no special tokens added but the EOS that ends each."""
    return [[*response, cast(int, tokenizer.eos_token_id)] for response in encode(tokenizer, texts)]


def _with_system(messages: list[dict[str, str]], system_prompt: str | None) -> list[dict[str, str]]:
    if not system_prompt or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system_prompt}, *messages]


def _start(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the BOS if the tokenizer itself begins every text with it."""
    first = cast(list[int], tokenizer("a")["input_ids"])[:1]
    return first if first == [tokenizer.bos_token_id] else []


def _clock(day: date | None) -> Callable[[str], str]:
    """Return what stands for `strftime_now` in a template: prompts must be the same on every day."""

    def strftime_now(form: str) -> str:
        if day is None:
            raise UserError(
                "the model's chat template writes the date of today, so the prompts of tomorrow would be others: set a "
                "date that stays, as data.chat_template_date=2026-11-30"
            )
        return datetime.combine(day, time()).strftime(form)

    return strftime_now
