"""The dataset task: the model's files and the tokenised prompts."""

from dataclasses import asdict

from configs.errors import UserError
from tasks.orchestrator.dispatch import stage
from tasks.run.directory import Run
from tasks.run.ledger import Receipt, once


@stage(name="prepare dataset", run_name="prepare dataset", limit=lambda limits: limits.dataset)
def prepare_dataset(run: Run) -> Receipt:
    """Fetch or build the model and prepare the prompts with its tokenizer.

    Both are cached by content, and what a run began with it keeps.

    Returns:
        `model` (its folder in Hugging Face format), `tokens` (its `trainer.model.tokens.ModelTokens`) and what
        `tasks.dataset.store.PreparedDataset` holds.

    Raises:
        UserError: a mistake in the recipe's data or model, or data that changed since the run began.
    """
    # Imported here, since it brings PyTorch and transformers, which the flow and the other tasks don't need.
    from tasks.dataset.prepare import prepare_in
    from trainer.model.tokens import tokens_of

    model, receipt = prepare_in(run.home, run.recipe)
    prepared = {"model": str(model), "tokens": asdict(tokens_of(model)), **asdict(receipt)}
    first = once(run.dataset, lambda: dict(prepared))
    sources = ", ".join(source.source for source in run.recipe.data.everything)
    if first["digest"] != prepared["digest"]:
        raise UserError(
            f"the dataset is not the one that {run.id} began with: {sources} or the model's tokenizer changed. "
            "Put it back, or begin a new run"
        )
    return prepared
