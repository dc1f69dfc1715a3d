"""How the objective is minimised, and on what."""

from pydantic import Field

from configs.section import Positive, Section


class Optimizer(Section):
    learning_rate: float = Field(default=2e-4, gt=0, description="AdamW's learning rate after warm-up.")
    warmup_steps: int = Field(default=0, ge=0, description="Steps of linear warm-up.")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="AdamW's averaging coefficients.")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's decoupled weight decay.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this global norm.")
    micro_batch_tokens: Positive = Field(default=8192, description="Padded tokens of one forward and backward pass.")


class Learner(Section):
    ranks: Positive = Field(default=1, description="torch.distributed ranks.")
    cpus: float = Field(default=0.0, ge=0, description="CPUs reserved for each rank in Ray.")
    gpus: int = Field(default=0, ge=0, le=1, description="GPUs of each rank.")
    threads: Positive = Field(default=2, description="OpenMP threads of each rank on a CPU.")
    checkpoint_every: Positive = Field(
        default=10, description="Steps between full checkpoints; lost steps are replayed from stored samples."
    )
