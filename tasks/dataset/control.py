"""What a question must not bring into a prompt: control tokens, and ids that are no tokens of the model.

A tokenizer takes the text `<|assistant|>` for the token that begins the assistant's turn, wherever it stands, and no
model was trained on questions that have it as text. Such a question is left out and counted.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from configs.errors import UserError
from tasks.dataset.prompts import encode
from tasks.records.question import Finding, Question
from tasks.records.thinking import TAGS
from trainer.model.tokens import read_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OF_THE_TEXT = {*TAGS, *TAGS.values()}
"""Tags that a question may speak of, as in `answer within <answer> tags`, whatever the tokenizer says of them."""


def control_tokens(model_dir: Path, template: str) -> dict[int, str]:
    """Return the tokens that only the chat template may write, by id.

    They are those that the tokenizer calls special and those added ones that stand in the template, as DeepSeek's
    `<｜User｜>` does, except for tags of thinking and answer.
    """
    added = read_tokenizer(model_dir).get_added_tokens_decoder()
    return {
        index: token.content
        for index, token in added.items()
        if (token.special or token.content in template) and token.content not in _OF_THE_TEXT
    }


def refuse_control_tokens(
    tokenizer: "PreTrainedTokenizerBase", questions: Sequence[Question], control: Mapping[int, str]
) -> tuple[list[Question], list[Finding]]:
    """Leave out questions with a control token in a message: (questions, those left out)."""
    texts = [[message["content"] for message in question.messages] for question in questions]
    flat = iter(_found(tokenizer, [text for messages in texts for text in messages], control))
    found = [set[str]().union(*(next(flat) for _ in messages)) for messages in texts]
    return [question for question, tokens in zip(questions, found, strict=True) if not tokens], [
        Finding.of(question, "control token in the question", f"{', '.join(sorted(tokens))}: {question.text}")
        for question, tokens in zip(questions, found, strict=True)
        if tokens
    ]


def check_system_prompt(
    tokenizer: "PreTrainedTokenizerBase", system_prompt: str | None, control: Mapping[int, str]
) -> None:
    """Refuse a system prompt with a control token: every question would get it.

    Raises:
        UserError: names it.
    """
    (found,) = _found(tokenizer, [system_prompt or ""], control)
    if found:
        raise UserError(
            f"data.system_prompt has {', '.join(sorted(found))}, which the tokenizer takes for control tokens: write "
            "it otherwise. Roles and turns are the chat template's to write"
        )


def _found(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], control: Mapping[int, str]) -> list[set[str]]:
    """Return the control tokens in each text."""
    unknown = tokenizer.unk_token_id
    return [
        # The unknown token stands for any character that the tokenizer lacks: it counts where it is spelled out.
        {control[index] for index in {*ids} & control.keys() if index != unknown or control[index] in text}
        for text, ids in zip(texts, encode(tokenizer, texts), strict=True)
    ]
