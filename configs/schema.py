"""The recipe: every setting of a training run, typed, with its unit, default and meaning.

A recipe is data. It is validated before anything starts, stored with the run, and never changed afterwards.
"""

from typing import Literal

from pydantic import Field, model_validator

from configs.algorithm import Algorithm
from configs.data import ColdStart, Data
from configs.learner import Descent, Learner, Optimizer
from configs.reward import Reward
from configs.section import Positive, Section, Share


class Model(Section):
    path: str = Field(
        default="tiny",
        description="`tiny` (built here, 1.6 M parameters), `smollm2` (ships as a package), a folder in Hugging Face "
        "format, or a hub id.",
    )
    revision: str | None = Field(default=None, description="Commit or tag of a hub id.")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Number format of the engine's weights and of the learner's forward pass."
    )
    context_length: Positive = Field(default=64, description="Tokens of prompt and response together.")


class Rollout(Section):
    prompts_per_step: Positive = Field(default=16, description="Groups a step.")
    samples_per_prompt: Positive = Field(default=16, description="Samples in a group.")
    max_response_tokens: Positive = Field(default=32, description="Tokens after which a response is cut.")
    temperature: float = Field(
        default=1.0, gt=0, description="Sampling temperature; the learner divides its logits by the same number."
    )
    shards: Positive = Field(
        default=2, description="Ray tasks that a step's rollout is split into; each is retried alone."
    )


class Engine(Section):
    count: Positive = Field(default=1, description="SGLang servers.")
    cpus: float = Field(
        default=0.0,
        ge=0,
        description="CPUs reserved for each engine in Ray; 0 shares them with the learner, which waits meanwhile.",
    )
    gpus: int = Field(default=0, ge=0, description="GPUs of each engine; more than one means tensor parallelism.")
    threads: Positive = Field(default=2, description="OpenMP threads of each engine on a CPU.")
    max_total_tokens: Positive = Field(default=16384, description="Tokens that the KV cache holds on a CPU.")
    memory_fraction: Share = Field(default=0.6, description="Share of GPU memory for weights and KV cache.")
    start_timeout: float = Field(default=300.0, gt=0, description="Seconds until a server must answer.")
    request_timeout: float = Field(default=600.0, gt=0, description="Seconds until a request must be answered.")
    hang_timeout: float = Field(
        default=120.0,
        ge=4.0,
        description="Seconds without a sign of life, while it loads weights too, until a server is ended and replaced.",
    )
    deterministic: bool = Field(
        default=True, description="Honour each sample's seed and make results independent of what else is in the batch."
    )


class Evaluation(Section):
    every: Positive = Field(
        default=20, description="Steps between evaluations; the first and the last weights are always evaluated."
    )
    samples_per_prompt: Positive = Field(default=1, description="Sampled responses a question, next to the greedy one.")
    temperature: float = Field(default=1.0, gt=0, description="Temperature of the sampled responses.")


class Tracking(Section):
    uri: str | None = Field(
        default=None, description="MLflow tracking URI; none means MLFLOW_TRACKING_URI or a local sqlite file."
    )
    experiment: str = Field(default="rl-post", description="MLflow experiment.")
    table_every: Positive = Field(default=20, description="Steps between tables of samples.")
    register_as: str | None = Field(default=None, description="Name of the registered model; none registers nothing.")


class Recipe(Section):
    name: str = Field(description="Name of the recipe; runs are called after it.")
    seed: int = Field(default=0, ge=0, description="Every random choice of the run derives from it.")
    steps: Positive = Field(default=60, description="Policy updates.")
    scale: str = Field(
        default="fixed", description="The entry of `scales` that was chosen, or `fixed` where the recipe has none."
    )
    model: Model = Model()
    data: Data = Data()
    cold_start: ColdStart | None = None
    rollout: Rollout = Rollout()
    engine: Engine = Engine()
    reward: Reward = Reward()
    algorithm: Algorithm = Algorithm()
    optimizer: Optimizer = Optimizer()
    critic: Descent = Descent()
    learner: Learner = Learner()
    evaluation: Evaluation = Evaluation()
    tracking: Tracking = Tracking()

    @model_validator(mode="after")
    def fits_together(self) -> "Recipe":
        """Refuse settings that can't work together, before anything starts."""
        groups, rows = self.rollout.prompts_per_step, self.data.train_size
        if rows and groups > rows:
            raise ValueError(
                f"rollout.prompts_per_step ({groups}) is larger than the dataset: data.train_size is {rows}"
            )
        if self.rollout.shards > groups:
            raise ValueError(
                f"rollout.shards ({self.rollout.shards}) is larger than rollout.prompts_per_step ({groups})"
            )
        response, context = self.rollout.max_response_tokens, self.model.context_length
        if response >= context:
            raise ValueError(
                f"rollout.max_response_tokens ({response}) leaves no room for a prompt: "
                f"model.context_length is {context}"
            )
        samples, algorithm = self.rollout.samples_per_prompt, self.algorithm
        if samples == 1 and (algorithm.needs_groups or algorithm.filters.zero_variance or algorithm.dynamic_sampling):
            raise ValueError(
                f"rollout.samples_per_prompt is 1: advantage {algorithm.advantage}, filters.zero_variance and "
                "dynamic_sampling compare the samples of a group, and a group of one tells nothing; set at least 2"
            )
        if algorithm.filters.overlong_buffer > response:
            raise ValueError(
                f"algorithm.filters.overlong_buffer ({algorithm.filters.overlong_buffer}) is larger than "
                f"rollout.max_response_tokens ({response}): every response would be punished"
            )
        if algorithm.filters.overlong_buffer and any(part.kind == "overlong" for part in self.reward.parts.values()):
            raise ValueError(
                "algorithm.filters.overlong_buffer and a reward part of kind overlong punish length twice: "
                "leave one out"
            )
        if self.optimizer.minibatches > groups:
            raise ValueError(
                f"optimizer.minibatches ({self.optimizer.minibatches}) is larger than rollout.prompts_per_step "
                f"({groups}): a group stays in one minibatch"
            )
        for name, descent in {"optimizer": self.optimizer, "critic": self.critic}.items():
            if descent.schedule != "constant" and descent.warmup_steps >= self.steps:
                raise ValueError(
                    f"{name}.warmup_steps ({descent.warmup_steps}) leaves no step of {self.steps} for "
                    f"schedule {descent.schedule}"
                )
        if self.critic != Descent() and not algorithm.needs_values:
            raise ValueError(f"critic has no effect with advantage {algorithm.advantage}: leave it out, or set gae")
        without = [source.label for source in self.data.mixture if source.source != "arithmetic"]
        if self.cold_start and without:
            raise ValueError(
                f"cold_start needs demonstrations, which data.source {without[0]} has not: "
                "set data.source to arithmetic or leave cold_start out"
            )
        return self
