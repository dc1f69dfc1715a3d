"""The recipe: every setting of a training run, typed, with its unit, default and meaning.

A recipe is data. It is validated before anything starts, stored with the run, and never changed afterwards.
"""

from math import ceil
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from configs.algorithm import RATIO_LOSSES, Algorithm
from configs.data import ColdStart, Data
from configs.learner import Learner, Optimizer, PolicyOptimizer
from configs.reward import Reward
from configs.section import Positive, Section, Share
from configs.timeouts import Timeouts

STORED = {"stored": True}
"""Context of the validation of a recipe that a run was begun with: what is refused only since then has to load."""
ENGINE_KEEPS = 6
"""Tokens of its context that SGLang 0.5.23 gives to nobody: it refuses prompts within 6 tokens of the end, and cuts
responses 2 tokens before it (its managers/tp_worker.py, and `init_req_max_new_tokens` of its scheduler.py)."""


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

    @property
    def served_context(self) -> int:
        """Tokens that a server has to be given, so that a prompt and a response can fill `context_length`."""
        return self.context_length + ENGINE_KEEPS


PLAIN_STOPS = ("\nQuestion:", "\nQ:", "\nProblem:", "\nExercise:", "\nInstruction:", "\nHuman:", "\nUser:")
"""Where a base model goes on with a question of its own after its answer. The first three are those of the harness that
base models are measured with (lm-evaluation-harness: gsm8k, minerva_math), the others the turns of what they read."""
MOST_STOPS = 32
"""Stop strings that SGLang takes (its sampling/sampling_params.py, MAX_STOP_COUNT)."""


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
    over_sampling: float = Field(
        default=1.0,
        ge=1.0,
        description="Groups that a step works on, as a multiple of prompts_per_step. When that many are finished, the "
        "others are left to the next step, so that long responses hold no step. 1 waits for all.",
    )
    stop: tuple[str, ...] | None = Field(
        default=None,
        max_length=MOST_STOPS,
        description="Texts that end a response, in training and evaluation. They are trained, and are not part of what "
        "is scored. None: with `data.chat_template: plain` where a base model would begin a next question, else none.",
    )

    @field_validator("stop")
    @classmethod
    def are_texts(cls, stop: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Refuse an empty text, which would end every response before it begins."""
        if stop and not all(stop):
            raise ValueError("an empty text would end every response: leave it out")
        return stop

    @property
    def groups_begun(self) -> int:
        """Groups that a step works on."""
        return ceil(self.prompts_per_step * self.over_sampling)


class Engine(Section):
    count: Positive = Field(default=1, description="SGLang servers.")
    cpus: float = Field(
        default=0.0,
        ge=0,
        description="CPUs reserved for each engine in Ray; 0 shares them with the learner, which waits meanwhile.",
    )
    gpus: int = Field(default=0, ge=0, description="GPUs of each engine; more than one means tensor parallelism.")
    placement: Literal["split", "colocated"] = Field(
        default="split",
        description="`split`: engines and learner have GPUs of their own. `colocated`: a learner rank shares each GPU "
        "of the engines, which give memory back while the learner works. CPUs are shared either way.",
    )
    in_flight: Positive = Field(
        default=64, description="Requests of a rollout shard that an engine works on at once; a group is a request."
    )
    threads: Positive = Field(default=2, description="OpenMP threads of each engine on a CPU.")
    max_total_tokens: Positive = Field(default=16384, description="Tokens that the KV cache holds on a CPU.")
    memory_fraction: Share = Field(default=0.6, description="Share of GPU memory for weights and KV cache.")
    deterministic: bool = Field(
        default=True, description="Honour each sample's seed and make results independent of what else is in the batch."
    )

    @property
    def colocated(self) -> bool:
        """Whether the learner's ranks are on the engines' GPUs."""
        return self.placement == "colocated" and self.gpus > 0


class Pipeline(Section):
    max_staleness: int = Field(
        default=0,
        ge=0,
        description="Updates by which a step's samples lie behind its own. With 0 every step samples from the weights "
        "that it updates; with s its rollout runs beside the updates of the s steps before it.",
    )


class WeightSync(Section):
    via: Literal["disk", "broadcast", "tensors"] = Field(
        default="disk",
        description="How new weights reach running engines. `disk`: through the run directory, every version; "
        "`broadcast`: from the learner's memory to all engines at once, by NCCL, RCCL or, on CPUs, gloo; `tensors`: "
        "through the shared memory of each node, to the engines of the nodes that have a learner rank. From memory, "
        "each rank keeps its shards of the last pipeline.max_staleness versions on its host.",
    )
    bucket_bytes: Positive = Field(
        default=512 * 2**20,
        description="Bytes of weights that are sent at a time, at least one tensor; learner and engines hold that much "
        "beside their own.",
    )


class Evaluation(Section):
    every: Positive = Field(
        default=20, description="Steps between evaluations; the first and the last weights are always evaluated."
    )
    samples_per_prompt: Positive = Field(default=1, description="Sampled responses a question, next to the greedy one.")
    temperature: float = Field(default=1.0, gt=0, description="Temperature of the sampled responses.")


class Tracking(Section):
    uri: str | None = Field(
        default=None,
        description="MLflow tracking URI, without a password; none means MLFLOW_TRACKING_URI or a local sqlite file.",
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
    archive: str | None = Field(
        default=None,
        pattern=r"^\w[\w+.-]*://",
        description="Where a copy of the run is kept up to date, as fsspec takes it: s3://bucket/folder, gs://…, "
        "file:///mnt/…; its credentials come from the environment. None keeps no copy.",
    )
    accelerator_type: str | None = Field(
        default=None,
        description="Which GPUs of a cluster that has several types: Ray's name of them, such as H100. None takes the "
        "only type there is.",
    )
    model: Model = Model()
    data: Data = Data()
    cold_start: ColdStart | None = None
    rollout: Rollout = Rollout()
    engine: Engine = Engine()
    reward: Reward = Reward()
    algorithm: Algorithm = Algorithm()
    optimizer: PolicyOptimizer = PolicyOptimizer()
    critic: Optimizer = Optimizer()
    learner: Learner = Learner()
    pipeline: Pipeline = Pipeline()
    weight_sync: WeightSync = WeightSync()
    evaluation: Evaluation = Evaluation()
    tracking: Tracking = Tracking()
    timeouts: Timeouts = Timeouts()

    @property
    def stop(self) -> tuple[str, ...]:
        """The texts that end a response."""
        if self.rollout.stop is not None:
            return self.rollout.stop
        return PLAIN_STOPS if self.data.chat_template == "plain" else ()

    @model_validator(mode="after")
    def can_share_gpus(self) -> "Recipe":
        """Refuse a colocated placement that leaves an engine or a rank without its counterpart."""
        engine, learner = self.engine, self.learner
        if engine.placement == "colocated" and self.pipeline.max_staleness:
            raise ValueError(
                f"pipeline.max_staleness is {self.pipeline.max_staleness}, but with engine.placement colocated "
                "rollouts and updates take turns: set one of them to its default"
            )
        if engine.placement == "colocated" and (
            engine.count * engine.gpus != learner.ranks * learner.gpus or bool(engine.gpus) != bool(learner.gpus)
        ):
            raise ValueError(
                f"engine.placement colocated puts a rank on each GPU of the engines: learner.ranks ({learner.ranks}) x "
                f"learner.gpus ({learner.gpus}) has to be engine.count ({engine.count}) x engine.gpus ({engine.gpus})"
            )
        return self

    @model_validator(mode="after")
    def fits_together(self) -> "Recipe":
        """Refuse settings that can't work together, before anything starts."""
        groups, rows = self.rollout.prompts_per_step, self.data.train_size
        if rows and self.rollout.groups_begun > rows:
            raise ValueError(
                f"rollout.prompts_per_step ({groups}) x over_sampling ({self.rollout.over_sampling}) is larger than "
                f"the dataset: data.train_size is {rows}"
            )
        if self.rollout.over_sampling > 1 and self.algorithm.dynamic_sampling:
            raise ValueError("rollout.over_sampling and algorithm.dynamic_sampling both choose groups: leave one out")
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
        if self.optimizer.minibatches > groups:
            raise ValueError(
                f"optimizer.minibatches ({self.optimizer.minibatches}) is larger than rollout.prompts_per_step "
                f"({groups}): a group stays in one minibatch"
            )
        staleness, limit = self.pipeline.max_staleness, algorithm.filters.max_lag
        over_sampling = self.rollout.over_sampling
        if (staleness or over_sampling > 1) and not algorithm.allows_stale_samples:
            raise ValueError(
                f"pipeline.max_staleness is {staleness} and rollout.over_sampling {over_sampling}, but loss "
                f"{algorithm.loss} against old_policy {algorithm.old_policy} takes stale samples for fresh ones: "
                "set correction.weight to token or sequence"
                + (", or old_policy to behaviour" if algorithm.loss in RATIO_LOSSES else "")
            )
        if limit is not None and staleness > limit:
            raise ValueError(
                f"algorithm.filters.max_lag ({limit}) would drop every sample of pipeline.max_staleness {staleness}"
            )
        if self.weight_sync.via == "broadcast" and self.engine.colocated:
            raise ValueError(
                "weight_sync.via broadcast needs a process group of learner and engines, in which NCCL and RCCL allow "
                "one rank a GPU, but engine.placement colocated has them share GPUs: set weight_sync.via to tensors"
            )
        for name, optimizer in {"optimizer": self.optimizer, "critic": self.critic}.items():
            if optimizer.schedule != "constant" and optimizer.warmup_steps >= self.steps:
                raise ValueError(
                    f"{name}.warmup_steps ({optimizer.warmup_steps}) leaves no step of {self.steps} for "
                    f"schedule {optimizer.schedule}"
                )
        if self.critic != Optimizer() and not algorithm.needs_values:
            raise ValueError(f"critic has no effect with advantage {algorithm.advantage}: leave it out, or set gae")
        without = [source.label for source in self.data.mixture if source.source != "arithmetic"]
        if self.cold_start and without:
            raise ValueError(
                f"cold_start needs demonstrations, which data.source {without[0]} has not: "
                "set data.source to arithmetic or leave cold_start out"
            )
        return self

    @model_validator(mode="after")
    def limits_hold(self, info: ValidationInfo) -> "Recipe":
        """Refuse settings that runs of before may have, whose limits did not hold or which failed late."""
        if info.context == STORED:
            return self
        budget, context = self.optimizer.micro_batch_tokens, self.model.context_length
        if budget < context:
            raise ValueError(
                f"optimizer.micro_batch_tokens ({budget}) is less than the longest sequence, prompt and response "
                f"together, which may have {context} tokens (model.context_length): a pass would take more than it "
                f"may. Set optimizer.micro_batch_tokens to {context} or more, or lower model.context_length"
            )
        if self.data.seed < 0:
            raise ValueError(f"data.seed ({self.data.seed}) is negative, and not every generator takes that")
        return self

    @model_validator(mode="after")
    def rewards_fit(self) -> "Recipe":
        """Refuse rewards that the advantage can't take, and parts that would do nothing."""
        longest = self.rollout.max_response_tokens
        rewards = {"reward": self.reward, **{f"the reward of {name}": own for name, own in self.data.rewards.items()}}
        for name, reward in rewards.items():
            if self.algorithm.advantage == "maxrl" and reward.punishes:
                raise ValueError(
                    f"advantage maxrl divides by the mean reward, but {name} may be below 0: leave out parts that "
                    "punish, and negative weights"
                )
            for part, settings in reward.parts.items():
                if settings.kind == "overlong" and (free := settings.max_tokens - settings.buffer) >= longest:
                    raise ValueError(
                        f"{name}.parts.{part} begins to punish above {free} tokens, but rollout.max_response_tokens is "
                        f"{longest}: it would do nothing"
                    )
        return self

    @property
    def versions_kept(self) -> int:
        """Versions before its own that the learner keeps in memory, since engines may still need them from there."""
        return 0 if self.weight_sync.via == "disk" else self.pipeline.max_staleness

    def stores_weights(self, version: int) -> bool:
        """Tell whether a weights version is written to disk even if nothing goes wrong.

        Out of memory engines get every version; written are the first and the last one, those with a checkpoint, and
        those that are evaluated, while the learner goes on: an engine that is lost then starts from them.
        """
        return self.weight_sync.via == "disk" or self.checkpoints(version) or self.evaluates(version)

    def checkpoints(self, version: int) -> bool:
        """Tell whether the learner's whole state is written at a version: every so many steps, and the last one."""
        return version % self.learner.checkpoint_every == 0 or version == self.steps

    def evaluates(self, version: int) -> bool:
        """Tell whether a weights version is evaluated: every so many steps, and the first and the last one."""
        return version % self.evaluation.every == 0 or version == self.steps
