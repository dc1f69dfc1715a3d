"""The dataset task: the model's files and the tokenised prompts."""

from dataclasses import asdict
from pathlib import Path

from configs.errors import UserError
from tasks.orchestrator.dispatch import stage
from tasks.run.directory import Run, models_in
from tasks.run.ledger import Receipt, once
from trainer.files import read_json


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
    from tasks.dataset.prepare import PREPARATION_VERSION, prepare_in
    from trainer.model.pretrained import materialise
    from trainer.model.tokens import tokens_of

    if run.dataset.exists():
        begun_with = read_json(run.dataset)
        # Another version of this project would prepare other prompts: the run keeps those that it began with.
        if begun_with.get("preparation") != PREPARATION_VERSION and Path(begun_with["path"]).is_dir():
            model = materialise(run.recipe.model, models_in(run.home))
            return {**begun_with, "model": str(model), "tokens": asdict(tokens_of(model))}
    model, receipt = prepare_in(run.home, run.recipe)
    tokens = asdict(tokens_of(model))
    prepared = {"model": str(model), "tokens": tokens, "preparation": PREPARATION_VERSION, **asdict(receipt)}
    first = once(run.dataset, lambda: dict(prepared))
    sources = ", ".join(source.source for source in run.recipe.data.everything)
    if first["digest"] != prepared["digest"]:
        raise UserError(
            f"the dataset is not the one that {run.id} began with: {sources} or the model's tokenizer changed. "
            "Put it back, or begin a new run"
        )
    return prepared
