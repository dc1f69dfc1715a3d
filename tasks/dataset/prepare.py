"""Dataset preparation: from a recipe to a folder of tokenised prompts, named by the content that it is made of."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from configs.errors import UserError
from configs.schema import Recipe
from tasks.dataset import store
from tasks.dataset.cold_start import demonstrate
from tasks.dataset.prompts import encode_prompts, load_tokenizer
from tasks.dataset.question import Question
from tasks.dataset.sources import Questions, load
from tasks.dataset.store import Prompt, Receipt

# Raise it when the same inputs would be prepared otherwise than before.
PREPARATION_VERSION = 2

_TOKENIZER_SUFFIXES = (".json", ".jinja", ".txt", ".model")


def prepare(recipe: Recipe, model_dir: Path, out_dir: Path) -> Receipt:
    """Prepare the recipe's prompts, or find them as prepared before; safe to repeat.

    Prompts that leave no room for `rollout.max_response_tokens` in `model.context_length` are left out and counted.

    Args:
        recipe: Of it, the data, the cold start, the context's and the response's length count.
        model_dir: Model in Hugging Face format; its tokenizer and chat template make the ids.
        out_dir: Where the prepared folder comes to lie, named after its digest.

    Raises:
        UserError: a mistake in the source or the settings (see `sources.load`), no usable tokenizer, fewer prompts
            left than a step needs or none for evaluation, or demonstrations longer than a response may be.
    """
    questions = load(recipe.data)
    digest = _digest(recipe, questions, model_dir)
    folder = out_dir / digest[:16]
    if folder.is_dir():
        return store.read_receipt(folder)

    tokenizer = load_tokenizer(model_dir)
    limit = recipe.model.context_length - recipe.rollout.max_response_tokens

    def encode_short(chosen: Sequence[Question]) -> list[Prompt]:
        ids = encode_prompts(tokenizer, chosen, recipe.data.system_prompt)
        return [Prompt(question, prompt) for question, prompt in zip(chosen, ids, strict=True) if len(prompt) <= limit]

    train, held_out = encode_short(questions.train), encode_short(questions.eval)
    _require_rows("training", len(train), len(questions.train), recipe.rollout.prompts_per_step, limit)
    _require_rows("evaluation", len(held_out), len(questions.eval), 1, limit)
    too_long = len(questions.train) + len(questions.eval) - len(train) - len(held_out)
    receipt = Receipt(
        path=str(folder),
        digest=digest,
        train_rows=len(train),
        eval_rows=len(held_out),
        dropped=dict(questions.dropped) | ({"too long": too_long} if too_long else {}),
    )
    store.write(receipt, train, held_out, demonstrate(recipe, train, tokenizer))
    return receipt


def _require_rows(name: str, left: int, total: int, needed: int, limit: int) -> None:
    if left < needed:
        raise UserError(
            f"{name} prompts: {left} of {total} rows left, limit {limit} tokens "
            f"(model.context_length - rollout.max_response_tokens); {needed} or more are needed"
        )


def _digest(recipe: Recipe, questions: Questions, model_dir: Path) -> str:
    """SHA-256 of all that decides what is prepared; the questions themselves stand for their source."""
    settings = {
        "version": PREPARATION_VERSION,
        "data": recipe.data.model_dump(mode="json"),
        "cold_start": recipe.cold_start and recipe.cold_start.model_dump(mode="json", exclude={"learning_rate"}),
        "context_length": recipe.model.context_length,
        "rollout": recipe.rollout.model_dump(mode="json", include={"max_response_tokens"}),
        "questions": [asdict(question) for question in [*questions.train, *questions.eval]],
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in sorted(model_dir.iterdir()):
        if path.suffix in _TOKENIZER_SUFFIXES:
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
