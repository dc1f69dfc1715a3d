"""`rl-post data`: prepare a recipe's prompts and show what came of them, without a cluster, a server or an engine."""

from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from configs.loader import load_recipe
from tasks.dataset.prepare import prepare_in
from tasks.dataset.report import markdown
from tasks.dataset.store import LEFT_OUT, read_report
from tasks.processes.machine import local_gpus
from tasks.run.directory import home


def show_data(name: str, overrides: Sequence[str], console: Console) -> None:
    """Prepare the prompts of a recipe, as its runs will find them, and print the data report.

    Every row that was left out is named, by file and line, in the prepared folder.

    Raises:
        UserError: a mistake in the recipe, its data or its model.
    """
    recipe = load_recipe(name, overrides, local_gpus())
    _, receipt = prepare_in(home(), recipe, weights=False)
    report = markdown(read_report(receipt.path))
    console.print(Markdown(report) if console.is_terminal else report, markup=False, soft_wrap=not console.is_terminal)
    console.print(
        f"{receipt.train_rows} training and {receipt.eval_rows} evaluation prompts in {receipt.path}", soft_wrap=True
    )
    if left_out := sum(receipt.dropped.values()):
        console.print(f"all {left_out} rows that were left out: {receipt.path}/{LEFT_OUT}", soft_wrap=True)
