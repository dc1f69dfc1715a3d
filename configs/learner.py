"""How the objective is minimised, and on what."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from configs.section import Positive, Section, Share

Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(Section):
    """How weights follow a gradient: AdamW on float32 weights, clipping, and a schedule of the learning rate."""

    learning_rate: float = Field(default=2e-4, gt=0, description="AdamW's learning rate after warm-up.")
    warmup_steps: int = Field(default=0, ge=0, description="Steps of linear warm-up.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="How the learning rate goes on from the end of the warm-up to the last step."
    )
    final_share: Share = Field(
        default=0.0, description="Share of the learning rate that linear and cosine fall to after the last step."
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.95), description="AdamW's averaging coefficients.")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's decoupled weight decay.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this global norm.")
    max_skipped: Positive = Field(
        default=5,
        description="Optimizer steps in a row whose gradient or loss is not finite, after which training stops.",
    )

    @model_validator(mode="after")
    def the_final_share_is_reached(self) -> "Optimizer":
        """Refuse a final share that nothing falls to."""
        if self.schedule == "constant" and self.final_share:
            raise ValueError(
                f"final_share is {self.final_share}, but a constant schedule falls to nothing: "
                "set schedule to linear or cosine, or leave final_share out"
            )
        return self


class PolicyOptimizer(Optimizer):
    """The policy's."""

    epochs: Positive = Field(default=1, description="Passes over the samples of a step.")
    minibatches: Positive = Field(
        default=1, description="Optimizer steps of a pass, each on its own share of the step's groups."
    )
    micro_batch_tokens: Positive = Field(
        default=8192,
        description="Tokens of one forward and backward pass, at least model.context_length; prompts that samples "
        "share count once.",
    )


class Lora(Section):
    """Low-rank adapters in place of the full weights (arXiv 2106.09685). The engines get merged weights."""

    rank: Positive = Field(default=16, description="Rank of the update of each weight matrix.")
    alpha: float = Field(default=32.0, gt=0, description="The update is scaled by alpha / rank.")
    targets: tuple[str, ...] = Field(
        default=("all-linear",),
        min_length=1,
        description="Names of the linear layers that get an adapter, such as q_proj; all-linear takes all but the "
        "output layer.",
    )


class Learner(Section):
    ranks: Positive = Field(default=1, description="torch.distributed ranks.")
    replicas: Positive = Field(
        default=1,
        description="Copies of the weights, each sharded over ranks / replicas neighbouring ranks (hybrid sharding). "
        "With one a node, weights are gathered within nodes and only gradients cross them.",
    )
    cpus: float = Field(default=0.0, ge=0, description="CPUs reserved for each rank in Ray.")
    gpus: int = Field(default=0, ge=0, le=1, description="GPUs of each rank.")
    threads: Positive = Field(default=2, description="OpenMP threads of each rank on a CPU.")
    deterministic: bool = Field(
        default=False,
        description="Take only PyTorch operations that give the same bits each time, and fail where there is none. "
        "CPUs give the same bits without; GPUs get slower.",
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="Keep only each layer's input for the backward pass and compute the rest again: less memory, a "
        "third more time.",
    )
    lora: Lora | None = Field(default=None, description="Train adapters; none trains all weights.")
    checkpoint_every: Positive = Field(
        default=10, description="Steps between full checkpoints; lost steps are replayed from stored samples."
    )

    @model_validator(mode="after")
    def replicas_are_equal(self) -> "Learner":
        """Refuse ranks that can't be dealt out to the replicas."""
        if self.ranks % self.replicas:
            raise ValueError(f"ranks ({self.ranks}) has to be a multiple of replicas ({self.replicas})")
        return self
