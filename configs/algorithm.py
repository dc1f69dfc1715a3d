"""The objective that the policy is trained on."""

from pydantic import Field

from configs.section import Section


class Algorithm(Section):
    """GRPO (arXiv 2402.03300) with token-mean aggregation and asymmetric clipping (DAPO, arXiv 2503.14476)."""

    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The ratio is clipped below at 1 - clip_low.")
    clip_high: float = Field(default=0.28, gt=0, description="The ratio is clipped above at 1 + clip_high.")
    kl_coefficient: float = Field(
        default=0.0, ge=0, description="Weight of the k3 estimate of KL(policy || reference) in the loss."
    )
    std_normalised: bool = Field(
        default=True, description="Divide advantages by the group's standard deviation (GRPO); false is Dr. GRPO."
    )
