"""Where questions come from, and the demonstrations of the cold start."""

from typing import Any

from pydantic import Field

from configs.section import Positive, Section, Share


class Data(Section):
    source: str = Field(
        default="arithmetic",
        description="`arithmetic`, `reasoning_gym:<task>`, `hub:<id>`, or a .jsonl, .json, .csv or .parquet file.",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of a generated source (e.g. digits), or of `datasets.load_dataset` for `hub:`.",
    )
    prompt_column: str = Field(default="question", description="Column of a file that holds the question.")
    answer_column: str = Field(default="answer", description="Column of a file that holds the gold answer.")
    train_size: Positive = Field(default=3840, description="Training questions.")
    eval_size: Positive = Field(default=200, description="Held-out questions; none of them is a training question.")
    system_prompt: str | None = Field(default=None, description="System message put before every question.")
    seed: int = Field(default=0, description="Seed of generation, split and order; separate from the run's seed.")


class ColdStart(Section):
    """Supervised fine-tuning on imperfect demonstrations before reinforcement learning.

    Source: DeepSeek-R1 (arXiv 2501.12948), section 2.3.1.
    """

    wrong_share: Share = Field(default=0.25, description="Share of demonstrations whose answer is wrong.")
    steps: Positive = Field(default=300, description="Optimizer steps.")
    batch_size: Positive = Field(default=128, description="Demonstrations a step.")
    learning_rate: float = Field(default=1e-3, gt=0, description="Peak learning rate of AdamW.")
