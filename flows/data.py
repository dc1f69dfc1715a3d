"""`rl-post data`: prepare a recipe's prompts and show what came of them, without a cluster, a server or an engine."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from configs.loader import load_recipe
from configs.schema import Recipe
from tasks.dataset.prepare import prepare_in
from tasks.dataset.report import markdown
from tasks.dataset.store import LEFT_OUT, read_prompts, read_report
from tasks.processes.machine import local_gpus
from tasks.records.question import Prompt
from tasks.records.thinking import TAGS
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer
from tasks.run.directory import home
from trainer.model.tokens import read_tokenizer

SHOWN = 3
"""Prompts that are shown whole."""


def show_data(name: str, overrides: Sequence[str], console: Console) -> None:
    """Prepare the prompts of a recipe, as its runs will find them, and print the data report and some prompts.

    Every row that was left out is named, by file and line, in the prepared folder.

    Raises:
        UserError: a mistake in the recipe, its data or its model.
    """
    recipe = load_recipe(name, overrides, local_gpus())
    model, receipt = prepare_in(home(), recipe, weights=False)
    report = markdown(read_report(receipt.path))
    console.print(Markdown(report) if console.is_terminal else report, markup=False, soft_wrap=not console.is_terminal)
    console.print(
        f"{receipt.train_rows} training and {receipt.eval_rows} evaluation prompts in {receipt.path}", soft_wrap=True
    )
    if left_out := sum(receipt.dropped.values()):
        console.print(f"all {left_out} rows that were left out: {receipt.path}/{LEFT_OUT}", soft_wrap=True)
    for line in examples(recipe, read_prompts(receipt.path, "train")[:SHOWN], model):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def examples(recipe: Recipe, prompts: Sequence[Prompt], model: Path) -> list[str]:
    """Return prompts as the model will see them, control tokens included, each with its gold and what that is worth.

    The gold is scored as a bare answer in its tags. A reward that asks a server is not asked here.
    """
    tokenizer = read_tokenizer(model)
    asks = any(part.kind == "http" for part in (recipe.reward.accuracy, *recipe.reward.parts.values()))
    if asks or any(reward.accuracy.kind == "http" for reward in recipe.data.rewards.values()):
        worth = ["known only to the server that the reward asks"] * len(prompts)
    else:
        with Scorer(recipe.reward, recipe.data.rewards, recipe.timeouts.answer) as scorer:
            scores = scorer.score([_gold(prompt) for prompt in prompts])
        worth = [f"{score.reward} ({score.status}; {_parts(score.parts)})" for score in scores]
    return [
        f"prompt {place} of {len(prompts)} that are shown, {prompt.question.id}, {len(prompt.ids)} tokens:\n"
        f"{tokenizer.decode(prompt.ids, skip_special_tokens=False)}\n"
        f"gold: {prompt.question.gold or 'none, its verifier tells'}\n"
        f"reward of the gold: {given}\n"
        for place, (prompt, given) in enumerate(zip(prompts, worth, strict=True), start=1)
    ]


def _gold(prompt: Prompt) -> Answered:
    closing = TAGS.get(prompt.opened, "")
    text = (
        prompt.question.gold + closing
        if closing == "</answer>"
        else f"{closing}<answer>{prompt.question.gold}</answer>"
    )
    return Answered(text, prompt.question, "stop", 0, opened=prompt.opened)


def _parts(parts: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {'unknown' if value is None else f'{value:g}'}" for name, value in parts.items())
