"""Where questions come from, what is kept of them, and the demonstrations of the cold start."""

from datetime import date
from typing import Any, Literal

from pydantic import Field, model_validator

from configs.reward import Reward
from configs.section import Positive, Section, Share

READER_COLUMNS: dict[str, tuple[str, ...]] = {
    "plain": ("question", "answer"),
    "gsm8k": ("question", "answer"),
    "math": ("problem", "solution"),
    "aime": ("problem", "answer"),
    "deepscaler": ("problem", "answer"),
    "dapo": ("prompt", "reward_model"),
    "multiple_choice": ("question", "choices", "answer"),
    "mbpp": ("text", "code", "test_list"),
    "humaneval": ("prompt", "canonical_solution", "test", "entry_point"),
}
"""The columns that each reader of `tasks/dataset/readers.py` needs, by the names of the data set it is made for."""

HUB, GYM = "hub:", "reasoning_gym:"


class Table(Section):
    """One place that questions come from: a generator, files, or a data set of the hub."""

    source: str = Field(
        description="`arithmetic`, `reasoning_gym:<task>`, `hub:<id>`, or files: a .jsonl, .json, .csv, .parquet or "
        ".arrow file, a folder of such files, or a glob like `data/*.jsonl`."
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of a generated source (e.g. digits), or of `datasets.load_dataset` for `hub:` (e.g. "
        "name, split, revision, streaming).",
    )
    reader: Literal["plain", "gsm8k", "math", "aime", "deepscaler", "dapo", "multiple_choice", "mbpp", "humaneval"] = (
        Field(default="plain", description="Layout of the rows: how a question and its gold answer are taken from one.")
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Columns that have other names than the reader's, e.g. `{question: problem, answer: solution}`.",
    )
    rows: Positive | None = Field(
        default=None,
        description="Rows to read: the first of the source as shuffled by `data.seed` in a buffer of 10,000 rows. None "
        "reads all; a stream needs a number.",
    )

    @property
    def generated(self) -> bool:
        """Whether questions are made here, rather than read from a table."""
        return self.source == "arithmetic" or self.source.startswith(GYM)

    @model_validator(mode="after")
    def fits_its_kind(self) -> "Table":
        """Refuse settings that the kind of source has no use for."""
        known = READER_COLUMNS[self.reader]
        if unknown := sorted(set(self.columns) - set(known)):
            raise ValueError(f"columns has {', '.join(unknown)}; the reader {self.reader} reads {', '.join(known)}")
        if self.generated and (self.reader != "plain" or self.columns or self.rows):
            raise ValueError(f"reader, columns and rows are for tables; {self.source} has none")
        if self.settings.get("streaming") and self.rows is None:
            raise ValueError("settings.streaming needs rows: how many to take of the stream")
        return self


class Source(Table):
    """A source with a name and a reward of its own."""

    name: str | None = Field(
        default=None, description="Name in reports and samples; none means the file's, the data set's or the task's."
    )
    reward: Reward | None = Field(default=None, description="Reward of this source; none means the recipe's.")

    @property
    def label(self) -> str:
        """The name under which questions, samples and reports know the source."""
        return self.name or self.origin

    @property
    def origin(self) -> str:
        """The source without the folder or the owner that it is of; for the hub with its split."""
        if self.generated:
            return self.source
        base = self.source.rstrip("/").rpartition("/")[2]
        if not self.source.startswith(HUB):
            return base
        return f"{base.removeprefix(HUB)}/{self.settings.get('split', 'train')}"


class WeightedSource(Source):
    """One of several training sources."""

    weight: float = Field(default=1.0, gt=0, description="Share of the training questions, against the other sources'.")


class Curriculum(Section):
    """Prompts are drawn by how often their last samples were right; those never sampled count as the best.

    A pass rate p gives the weight `floor + (1 - floor) * 4 p (1 - p)`: most for a prompt solved half of the time, whose
    rewards vary most (learnability p (1 - p): Foster et al., arXiv 2502.12272). `floor: 1` with a range filters only.
    """

    low: Share = Field(default=0.0, description="Prompts with a lower pass rate are left out while others last.")
    high: Share = Field(default=1.0, description="Prompts with a higher pass rate are left out while others last.")
    floor: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="Weight of a prompt always or never solved; 1 draws all in the range alike.",
    )

    @model_validator(mode="after")
    def is_a_range(self) -> "Curriculum":
        """Refuse a range that no pass rate is in."""
        if self.low > self.high:
            raise ValueError(f"curriculum.low ({self.low}) is above curriculum.high ({self.high})")
        return self


class Data(Table):
    """The prompts: from one source, or mixed from several in `sources`."""

    source: str = Field(default="arithmetic", description=Table.model_fields["source"].description)
    sources: tuple[WeightedSource, ...] = Field(
        default=(), description="Several sources, in place of `source` and its settings."
    )
    eval: Source | None = Field(
        default=None, description="Source of the evaluation questions; none holds some of the training source's out."
    )
    train_size: Positive | None = Field(
        default=3840,
        description="Training questions, before the length limit and the check of golds; none takes all that there are "
        "(of several sources as many as their weights allow).",
    )
    eval_size: Positive | None = Field(
        default=200,
        description="Evaluation questions; none of them is a training question. None takes all of `data.eval`.",
    )
    seed: int = Field(default=0, description="Seed of generation, split and order; separate from the run's seed.")
    system_prompt: str | None = Field(
        default=None, description="System message put before every question that brings none of its own."
    )
    chat_template: str | None = Field(
        default=None,
        description="None takes the tokenizer's; `plain` is the messages' texts, each followed by a blank line, for "
        "base models; or a .jinja file.",
    )
    chat_template_settings: dict[str, Any] = Field(
        default_factory=dict, description="Variables of the chat template, e.g. `{enable_thinking: false}`."
    )
    chat_template_date: date | None = Field(
        default=None,
        description="The day that a chat template writes which asks for today's, e.g. 2026-11-30; such a template is "
        "refused without one.",
    )
    too_long: Literal["drop", "error", "cut_left"] = Field(
        default="drop",
        description="Prompts that leave no room for a response are dropped, are an error, or lose their first tokens.",
    )
    near_duplicates: float | None = Field(
        default=None,
        gt=0,
        le=0.95,
        description="Questions of tables that share this much of their word triples (Jaccard) with an earlier one are "
        "dropped; none drops only the same texts.",
    )
    contamination_words: Positive | None = Field(
        default=8,
        description="Training questions of tables that share this many words in a row with an evaluation question are "
        "dropped; none drops only the same texts.",
    )
    curriculum: Curriculum | None = Field(
        default=None, description="Draw prompts by their pass rate; none shows all equally often, epoch by epoch."
    )

    @property
    def mixture(self) -> tuple[WeightedSource, ...]:
        """The training sources: `sources`, or the one that is given by `source` and its settings."""
        return self.sources or (WeightedSource(**{name: getattr(self, name) for name in Table.model_fields}),)

    @property
    def everything(self) -> tuple[Source, ...]:
        """The training sources and, where there is one, that of the evaluation questions."""
        return (*self.mixture, self.eval) if self.eval else self.mixture

    @property
    def rewards(self) -> dict[str, Reward]:
        """The rewards of the sources that have one of their own, by the source's label."""
        return {source.label: source.reward for source in self.everything if source.reward}

    @model_validator(mode="after")
    def sources_fit_together(self) -> "Data":
        """Refuse sources that can't be told apart, and sizes that nothing decides."""
        unset = Table(source="arithmetic")
        given = [name for name in Table.model_fields if getattr(self, name) != getattr(unset, name)]
        if self.sources and given:
            raise ValueError(f"data.sources takes the place of data.{', data.'.join(given)}: leave one out")
        labels = [source.label for source in self.everything]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"several sources are called {', '.join(twice)}: give them a name each")
        endless = [source.label for source in self.mixture if source.source.startswith(GYM)]
        if self.train_size is None and endless:
            raise ValueError(f"data.train_size: give a number, since {endless[0]} has no end")
        if self.eval_size is None and (self.eval is None or self.eval.source.startswith(GYM)):
            raise ValueError("data.eval_size: give a number; all can be taken only of a data.eval that ends")
        if self.chat_template not in (None, "plain") and not str(self.chat_template).endswith(".jinja"):
            raise ValueError(
                f"data.chat_template is {self.chat_template!r}: give `plain` or a .jinja file, or leave it out"
            )
        return self


class ColdStart(Section):
    """Supervised fine-tuning on imperfect demonstrations before reinforcement learning.

    Source: DeepSeek-R1 (arXiv 2501.12948), section 2.3.1.
    """

    wrong_share: Share = Field(default=0.25, description="Share of demonstrations whose answer is wrong.")
    steps: Positive = Field(default=300, description="Optimizer steps.")
    batch_size: Positive = Field(default=128, description="Demonstrations a step.")
    learning_rate: float = Field(default=1e-3, gt=0, description="Peak learning rate of AdamW.")
