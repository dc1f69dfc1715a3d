"""The objective that the policy is trained on. docs/papers.md has the settings of each paper's method."""

from typing import Any, Literal

from pydantic import Field, model_validator

from configs.section import Positive, Section

GROUP_BASELINES = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "maxrl")
"""Advantages that compare a sample with the others of its group."""

RATIO_LOSSES = ("clip", "gspo", "cispo", "sapo", "dppo")
"""Losses that hold the ratio of policy to old policy."""

Range = tuple[float, float]
AdvantageName = Literal[
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "maxrl",
    "batch_normalised",
    "gae",
    "accepted",
    "distillation",
]
LossName = Literal["clip", "gspo", "cispo", "sapo", "policy_gradient", "dppo", "sft"]
AggregationName = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum"]
KlName = Literal["k1", "k2", "k3"]
RejectionName = Literal["none", "token", "sequence", "geometric"]


class Kl(Section):
    """KL(policy || reference); the reference is the policy that the run started from."""

    coefficient: float = Field(default=0.0, ge=0, description="Weight of the KL; 0 keeps no reference.")
    estimator: KlName = Field(default="k3", description="Estimate of a token's KL.")
    place: Literal["loss", "reward"] = Field(
        default="loss", description="Added to the loss of each token, or taken off its reward before advantages."
    )
    unbiased_gradient: bool = Field(
        default=False,
        description="In the loss: weigh the estimate by policy/behaviour probability, which makes its gradient that of "
        "the KL, for stale samples too.",
    )

    @model_validator(mode="after")
    def has_the_gradient_of_a_kl(self) -> "Kl":
        """Refuse combinations whose gradient is not that of a KL."""
        if self.place == "reward" and self.unbiased_gradient:
            raise ValueError("kl.unbiased_gradient is about a KL in the loss: in the reward there is no gradient")
        if self.coefficient > 0 and self.place == "loss":
            if self.estimator == "k1" and not self.unbiased_gradient:
                raise ValueError(
                    "kl.estimator k1 in the loss has a gradient of mean 0: "
                    "set kl.unbiased_gradient to true, kl.place to reward, or take k2 or k3"
                )
            if self.estimator == "k2" and self.unbiased_gradient:
                raise ValueError("kl.unbiased_gradient is wrong for k2, whose mean is not the KL: take k1 or k3")
        return self


class Sapo(Section):
    """Temperatures of SAPO's gate; the higher, the faster a token's weight falls off with its ratio."""

    temperature_positive: float = Field(default=1.0, gt=0, description="For positive advantages.")
    temperature_negative: float = Field(default=1.05, gt=0, description="For the others.")


class Dppo(Section):
    """Trust region of DPPO, on the probability of the sampled token against all others."""

    divergence: Literal["tv", "kl"] = Field(default="tv", description="Total variation, or KL in nats.")
    threshold: float = Field(
        default=0.15, gt=0, description="A token further from the old policy than this, and on its way out, is masked."
    )


class Gae(Section):
    """Generalised advantage estimation with a critic."""

    discount: float = Field(default=1.0, gt=0, le=1, description="Discount of rewards per token (gamma).")
    smoothing: float = Field(default=0.95, ge=0, le=1, description="Weight of longer estimates (lambda).")
    value_clip: float | None = Field(
        default=0.2, gt=0, description="The critic's values are clipped to the old ones ± this; none clips nothing."
    )


class Correction(Section):
    """What is done about the gap between the engine's log-probs and the learner's, and about stale samples.

    The ratio is learner's / behaviour probability: the old policy's if `old_policy` is learner, else the current one's.
    """

    weight: Literal["none", "token", "sequence"] = Field(
        default="none", description="Importance weight that a token's loss is multiplied by: of the token or sequence."
    )
    weight_range: Range = Field(default=(0.0, 2.0), description="Importance weights are truncated to this range.")
    reject: RejectionName = Field(
        default="none",
        description="What is masked out if its ratio is out of reject_range: a token, a sequence by the product of its "
        "tokens' ratios, or a sequence by their geometric mean. A rejected sequence leaves its group's baseline too.",
    )
    mean_over: Literal["sampled", "kept"] = Field(
        default="sampled",
        description="What the loss's mean is over: `sampled` counts rejected tokens as 0 (IcePop, arXiv 2510.18855), "
        "so that rejecting some does not scale up the others; `kept` leaves them out, as verl and slime do.",
    )
    reject_range: Range = Field(
        default=(0.5, 2.0),
        description="Range of ratios that are kept. For reject geometric it is [0.99, 1.01] if it is left out: a mean "
        "over a sequence hardly moves (Geo-RS of `When Speed Kills Stability`, part 3).",
    )
    off_policy_limit: float | None = Field(
        default=None,
        gt=0,
        description="Sequences of negative advantage are masked out if their mean log(behaviour/policy) is above this, "
        "nats a token; none masks nothing.",
    )

    @model_validator(mode="before")
    @classmethod
    def range_suits_its_ratio(cls, settings: Any) -> Any:
        """Give the geometric mean a range of its own, unless the recipe says one."""
        if isinstance(settings, dict) and settings.get("reject") == "geometric":
            return {"reject_range": (0.99, 1.01), **settings}
        return settings

    @model_validator(mode="after")
    def something_is_rejected(self) -> "Correction":
        """Refuse a mean over what is kept where all is."""
        if self.mean_over == "kept" and self.reject == "none":
            raise ValueError("correction.mean_over kept has no effect with reject none: leave it out")
        return self

    @property
    def rejects_sequences(self) -> bool:
        """Whether whole sequences are rejected."""
        return self.reject in ("sequence", "geometric")

    @property
    def rejects_before(self) -> bool:
        """Whether it has to be known before the first optimizer step what is rejected: for baseline or mean."""
        return self.rejects_sequences or self.mean_over == "kept"

    @model_validator(mode="after")
    def ranges_hold_one(self) -> "Correction":
        """Refuse ranges that would change an on-policy sample."""
        for name in ("weight_range", "reject_range"):
            low, high = getattr(self, name)
            if not 0 <= low <= 1 <= high:
                raise ValueError(
                    f"correction.{name} is [{low}, {high}]: it must hold 1, the ratio of an on-policy token"
                )
        return self


class Filters(Section):
    """Which samples take part."""

    max_lag: int | None = Field(
        default=None,
        ge=0,
        description="Samples of weights older than this many versions are dropped; none drops nothing.",
    )
    truncated: Literal["keep", "mask", "drop"] = Field(
        default="keep",
        description="Responses cut at the token limit: trained on; masked out of the loss, while their rewards count "
        "in the baseline; or dropped as if they weren't there.",
    )
    zero_variance: bool = Field(
        default=False,
        description="Drop groups whose samples are all equally right: they then don't count in the loss's mean or KL.",
    )


class DynamicSampling(Section):
    """Sample until there are enough groups that something can be learnt from."""

    max_rounds: Positive = Field(default=10, description="Rollout rounds of a step, after which it is an error.")


class Algorithm(Section):
    """The defaults are GRPO (arXiv 2402.03300) with token-mean and asymmetric clipping (DAPO, arXiv 2503.14476)."""

    advantage: AdvantageName = Field(
        default="grpo",
        description="How much better a sample or token was than expected. `accepted` is 1 for right answers and masks "
        "the others; `distillation` is the log-prob of the teacher minus the policy's.",
    )
    loss: LossName = Field(default="clip", description="Loss of a token, given its advantage.")
    clip_low: float = Field(
        default=0.2, gt=0, le=1, description="The ratio is clipped below at 1 - clip_low (clip, gspo, cispo)."
    )
    clip_high: float = Field(
        default=0.28, gt=0, description="The ratio is clipped above at 1 + clip_high (clip, gspo, cispo)."
    )
    dual_clip: float | None = Field(
        default=None, gt=1, description="The loss of a negative advantage is at most this times its size (clip)."
    )
    sapo: Sapo = Sapo()
    dppo: Dppo = Dppo()
    aggregation: AggregationName = Field(
        default="token_mean",
        description="Mean over the batch's tokens; mean over sequences of their means; or mean over sequences of their "
        "sums / rollout.max_response_tokens.",
    )
    old_policy: Literal["behaviour", "learner"] = Field(
        default="behaviour",
        description="What ratios are against: the engine's log-probs, or the learner's own before the update "
        "(decoupled PPO).",
    )
    kl: Kl = Kl()
    correction: Correction = Correction()
    gae: Gae = Gae()
    filters: Filters = Filters()
    dynamic_sampling: DynamicSampling | None = Field(
        default=None, description="Sample on until enough groups have both right and wrong answers; none samples once."
    )
    teacher: str | None = Field(
        default=None, description="Teacher of `distillation`: folder in Hugging Face format or hub id, same tokenizer."
    )

    @model_validator(mode="after")
    def settings_have_their_effect(self) -> "Algorithm":
        """Refuse settings that would do nothing, or not what they say."""
        defaults = Algorithm.model_fields
        for name, effective in self.effective.items():
            if name in defaults and not effective and getattr(self, name) != defaults[name].default:
                raise ValueError(
                    f"algorithm.{name} has no effect with loss {self.loss} and advantage {self.advantage}: leave it out"
                )
        if (self.advantage == "distillation") != (self.teacher is not None):
            raise ValueError("advantage distillation and a teacher need each other: set both or none")
        if self.loss == "dppo" and self.old_policy == "learner":
            raise ValueError(
                "loss dppo has its trust region around the policy that sampled: set old_policy to behaviour"
            )
        if self.loss == "sft" and self.advantage != "accepted":
            raise ValueError("loss sft imitates: it needs advantage accepted, or it would imitate wrong answers too")
        if self.correction.weight != "none" and self.old_policy == "behaviour" and self.loss in RATIO_LOSSES:
            raise ValueError(
                f"correction.weight {self.correction.weight} would count twice: loss {self.loss} has its ratio against "
                "the behaviour log-probs already; set old_policy to learner"
            )
        if self.kl_in_reward and self.advantage in ("accepted", "distillation"):
            raise ValueError(f"kl.place reward has no effect with advantage {self.advantage}, which reads no rewards")
        if self.advantage == "maxrl" and self.kl_in_reward:
            raise ValueError("advantage maxrl divides by the mean reward: it needs rewards without a KL")
        return self

    @property
    def effective(self) -> dict[str, bool]:
        """Whether a setting does anything beside the others, for those that may not; by path within this section."""
        return {
            "sapo": self.loss == "sapo",
            "dppo": self.loss == "dppo",
            "dual_clip": self.loss == "clip",
            "clip_low": self.loss in ("clip", "gspo", "cispo"),
            "clip_high": self.loss in ("clip", "gspo", "cispo"),
            "gae": self.advantage == "gae",
            "kl.estimator": self.kl.coefficient > 0,
            "kl.place": self.kl.coefficient > 0,
            "correction.weight_range": self.correction.weight != "none",
        }

    @property
    def kl_in_loss(self) -> bool:
        """Whether the loss has a KL term."""
        return self.kl.coefficient > 0 and self.kl.place == "loss"

    @property
    def kl_in_reward(self) -> bool:
        """Whether rewards have a KL term."""
        return self.kl.coefficient > 0 and self.kl.place == "reward"

    @property
    def needs_reference(self) -> bool:
        """Whether log-probs of a frozen reference are needed."""
        return self.kl.coefficient > 0

    @property
    def needs_old(self) -> bool:
        """Whether ratios are against the learner's log-probs before the first epoch."""
        return self.old_policy == "learner"

    @property
    def needs_own_logprobs(self) -> bool:
        """Whether the learner computes its log-probs before the first epoch."""
        return self.needs_old or self.correction.rejects_before

    @property
    def allows_stale_samples(self) -> bool:
        """Whether the loss accounts for samples of older weights: by its ratio, by a weight, or as mere examples."""
        by_ratio = self.loss in RATIO_LOSSES and self.old_policy == "behaviour"
        return by_ratio or self.correction.weight != "none" or self.advantage == "accepted"

    @property
    def needs_values(self) -> bool:
        """Whether a critic is trained."""
        return self.advantage == "gae"

    @property
    def needs_teacher(self) -> bool:
        """Whether log-probs of a teacher are needed."""
        return self.advantage == "distillation"

    @property
    def needs_groups(self) -> bool:
        """Whether a sample is compared with others of its prompt."""
        return self.advantage in GROUP_BASELINES
