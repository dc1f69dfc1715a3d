"""Dataset preparation: from a recipe to a folder of tokenised prompts, named by the content that it is made of."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path

from configs.errors import UserError
from configs.schema import Recipe
from tasks.dataset import store
from tasks.dataset.contamination import gives_answer_away
from tasks.dataset.control import check_system_prompt, control_tokens, refuse_control_tokens
from tasks.dataset.demonstrations import demonstrate
from tasks.dataset.prompts import disagreements, load_tokenizer, read_template, render_prompts, tokenise
from tasks.dataset.report import build_report
from tasks.dataset.sources import Candidates, choose_questions, count_reasons, read_sources
from tasks.dataset.store import PreparedDataset
from tasks.records.question import Finding, Prompt, Question
from tasks.records.thinking import opened
from tasks.reward.scorer import Scorer, gold_statuses
from tasks.run.directory import datasets_in, models_in
from trainer.model.pretrained import materialise
from trainer.model.tokens import beyond_positions, positions_in, tokens_of

# Raise it when the same inputs would be prepared otherwise than before.
PREPARATION_VERSION = 5

_TOKENIZER_SUFFIXES = (".json", ".jinja", ".txt", ".model")


def prepare_in(home: Path, recipe: Recipe, weights: bool = True) -> tuple[Path, PreparedDataset]:
    """Fetch or build the recipe's model and prepare its prompts, both in the caches of `home`: (model, receipt).

    Without `weights` no more is fetched from the hub than the prompts take: the tokenizer and the configuration.

    Raises:
        UserError: as `prepare`, or the model can't be had, or it has fewer positions than the context takes.
    """
    model = materialise(recipe.model, models_in(home), weights)
    if problem := beyond_positions(recipe.model.path, recipe.model.context_length, positions_in(model)):
        raise UserError(problem)
    return model, prepare(recipe, model, datasets_in(home))


def prepare(recipe: Recipe, model_dir: Path, out_dir: Path) -> PreparedDataset:
    """Prepare the recipe's prompts, or find them as prepared before; safe to repeat.

    Prompts that leave no room for `rollout.max_response_tokens` in `model.context_length` are treated as
    `data.too_long` says. Questions whose own gold the reward doesn't take for right are left out: they would punish
    right answers. Whatever is left out is in the folder's report.

    Args:
        recipe: Of it, the data, the rewards, the cold start, the context's and the response's length count.
        model_dir: Model in Hugging Face format; its tokenizer and chat template make the ids.
        out_dir: Where the prepared folder comes to lie, named after its digest.

    Raises:
        UserError: a mistake in a source or the settings (see `sources.read` and `sources.choose`), no usable tokenizer,
            fewer prompts left than a step needs or none for evaluation, or demonstrations longer than a response may
            be.
    """
    pools, own_eval = read_sources(recipe.data)
    digest = _digest(recipe, [*pools, own_eval] if own_eval else pools, model_dir)
    folder = out_dir / digest[:16]
    if folder.is_dir():
        return store.read_receipt(folder)

    questions = choose_questions(recipe.data, pools, own_eval)
    data, tokens = recipe.data, tokens_of(model_dir)
    tokenizer = load_tokenizer(model_dir, read_template(data))
    control = control_tokens(model_dir, str(tokenizer.chat_template))
    check_system_prompt(tokenizer, data.system_prompt, control)
    limit = recipe.model.context_length - recipe.rollout.max_response_tokens
    dropped = list(questions.dropped)
    noted: list[Finding] = []

    def select(chosen: Sequence[Question]) -> list[Prompt]:
        plain, controlling = refuse_control_tokens(tokenizer, chosen, control)
        checkable, refused = _check_golds(recipe, plain)
        texts = render_prompts(
            tokenizer, checkable, data.system_prompt, data.chat_template_settings, data.chat_template_date
        )
        ids = tokenise(tokenizer, texts)
        noted.extend(disagreements(model_dir, checkable, texts, ids))
        prompts = [
            Prompt(question, prompt, opened(text, question.text))
            for question, prompt, text in zip(checkable, ids, texts, strict=True)
        ]
        known = [tokens.holds(set(prompt.ids)) for prompt in prompts]
        foreign = [
            Finding.of(prompt.question, "ids that are no tokens of the model")
            for prompt in compress(prompts, [not own for own in known])
        ]
        fitting, too_long = _fit(list(compress(prompts, known)), limit, data.too_long)
        dropped.extend(controlling + refused + foreign + too_long)
        return fitting

    train, held_out = select(questions.train), select(questions.eval)
    reasons = count_reasons(dropped)
    needs = f"limit {limit} tokens (model.context_length - rollout.max_response_tokens)"
    _require_rows("training", len(train), len(questions.train), recipe.rollout.groups_begun, needs, reasons)
    _require_rows("evaluation", len(held_out), len(questions.eval), 1, needs, reasons)
    report = build_report(
        questions.rows,
        [(prompt.question, prompt.ids) for prompt in train],
        [(prompt.question, prompt.ids) for prompt in held_out],
        dropped,
        [*noted, *(note for prompt in train + held_out for note in _notes(prompt.question))],
    )
    made = _digest_of_ids(digest, train, held_out)
    receipt = PreparedDataset(
        path=str(folder), digest=made, train_rows=len(train), eval_rows=len(held_out), dropped=reasons
    )
    store.write(receipt, report, train, held_out, demonstrate(recipe, train, tokenizer), dropped)
    return receipt


def _check_golds(recipe: Recipe, questions: Sequence[Question]) -> tuple[list[Question], list[Finding]]:
    """Refuse questions whose own gold, given as the answer, isn't right: (questions, those refused).

    A question without a gold can't be checked and is kept.
    """
    known = [question for question in questions if question.gold]
    with Scorer(recipe.reward, recipe.data.rewards, recipe.timeouts.answer) as scorer:
        statuses = gold_statuses(scorer, known)
    refused = {
        question: Finding.of(question, "own gold not right", f"{status}, gold `{question.gold}`: {question.text}")
        for question, status in zip(known, statuses, strict=True)
        if status != "right"
    }
    return [question for question in questions if question not in refused], list(refused.values())


def _fit(prompts: Sequence[Prompt], limit: int, policy: str) -> tuple[list[Prompt], list[Finding]]:
    """Apply the length limit in tokens: (prompts that fit it, those left out).

    A prompt is cut from the left as ids, never by decoding, so what is left of it keeps its special tokens.

    Raises:
        UserError: the policy is `error` and a prompt is too long.
    """
    if policy == "cut_left":
        return [replace(prompt, ids=prompt.ids[-limit:]) for prompt in prompts], []
    too_long = [prompt for prompt in prompts if len(prompt.ids) > limit]
    if too_long and policy == "error":
        first = too_long[0]
        raise UserError(
            f"{first.question.id}: the prompt takes {len(first.ids)} tokens, limit {limit}; {len(too_long)} prompts "
            "are too long. Raise model.context_length, or set data.too_long to drop or cut_left"
        )
    findings = [
        Finding.of(prompt.question, "too long", f"{len(prompt.ids)} tokens, limit {limit}: {prompt.question.text}")
        for prompt in too_long
    ]
    return [prompt for prompt in prompts if len(prompt.ids) <= limit], findings


def _notes(question: Question) -> list[Finding]:
    notes = []
    if gives_answer_away(question):
        notes.append(Finding.of(question, "the gold is in the prompt", f"gold `{question.gold}`: {question.text}"))
    if not question.gold:
        notes.append(Finding.of(question, "no gold to check"))
    return notes


def _require_rows(name: str, left: int, total: int, needed: int, limit: str, reasons: dict[str, int]) -> None:
    if left < needed:
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        raise UserError(
            f"{name} prompts: {left} of {total} rows left, {limit}; {needed} or more are needed. Left out: {why}"
        )


def _digest_of_ids(inputs: str, train: Sequence[Prompt], held_out: Sequence[Prompt]) -> str:
    """SHA-256 of what a folder is made of and of the ids that came out: a template is a program, and may do anything.

    A run goes on only with the same ids, whatever it was that changed them.
    """
    digest = hashlib.sha256(inputs.encode())
    for prompts in (train, held_out):
        digest.update(json.dumps([[prompt.ids, prompt.opened] for prompt in prompts]).encode())
    return digest.hexdigest()


def _digest(recipe: Recipe, pools: Sequence[Candidates], model_dir: Path) -> str:
    """SHA-256 of all that decides what is prepared; the questions themselves stand for their source."""
    settings = {
        "version": PREPARATION_VERSION,
        "data": recipe.data.model_dump(mode="json", exclude={"curriculum"}),
        "reward": recipe.reward.model_dump(mode="json"),
        "cold_start": recipe.cold_start and recipe.cold_start.model_dump(mode="json", exclude={"learning_rate"}),
        "context_length": recipe.model.context_length,
        "rollout": recipe.rollout.model_dump(mode="json", include={"max_response_tokens"}),
        "chat_template": read_template(recipe.data),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for pool in pools:
        for entry in [*pool.questions, *pool.dropped]:
            digest.update(json.dumps(asdict(entry), sort_keys=True).encode())
    for path in sorted(model_dir.iterdir()):
        if path.suffix in _TOKENIZER_SUFFIXES:
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
