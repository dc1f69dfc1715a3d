"""What the cited papers set, and in which settings a recipe of their method differs from them.

Only what decides the method is compared: the loss and its bounds, the mean, the KL, the advantage, the temperature and
the updates a batch. What depends on model, data and machine is not: learning rates, batches, lengths, the samples of a
prompt, PPO's discount. A value stands here if the paper's text or its authors' script says it. So these are left out:

- CISPO's upper bound, which its paper does not tell, and the KL of GSPO and SAPO, whose papers leave it out;
- the KL coefficient of REINFORCE++ with a baseline, for which the authors' scripts have several;
- the constant of dual-clip PPO, MaxRL, batch-normalised advantages, REINFORCE, rejection sampling and distillation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from configs.algorithm import AdvantageName, Algorithm
from configs.schema import Recipe


@dataclass(frozen=True)
class Stated:
    """A value and where it is stated: a place in the paper, or another source, which begins with `arXiv` or a path."""

    value: Any
    place: str


@dataclass(frozen=True)
class Paper:
    """What a paper sets.

    Attributes:
        method: its name for its method.
        arxiv: identifier.
        applies: whether an objective is of the method, however it is set.
        settings: what the paper sets, by path within the recipe.
    """

    method: str
    arxiv: str
    applies: Callable[[Algorithm], bool]
    settings: Mapping[str, Stated]


@dataclass(frozen=True)
class Difference:
    """A setting of a recipe that is not its paper's."""

    method: str
    setting: str
    value: Any
    papers: Any
    source: str

    def __str__(self) -> str:
        return f"{self.setting} {_shown(self.value)}: the paper ({self.source}) has {_shown(self.papers)}"


def differences(recipe: Recipe) -> list[Difference]:
    """The settings in which a recipe differs from the papers of its method; settings without effect don't count."""
    algorithm = recipe.algorithm
    without_effect = {f"algorithm.{name}" for name, effective in algorithm.effective.items() if not effective}
    return [
        Difference(paper.method, setting, value, stated.value, _source(paper, stated))
        for paper in PAPERS
        if paper.applies(algorithm)
        for setting, stated in paper.settings.items()
        if setting not in without_effect and (value := value_of(recipe, setting)) != stated.value
    ]


def value_of(recipe: Recipe, setting: str) -> Any:
    """The value of a setting, given by its path."""
    return reduce(getattr, setting.split("."), recipe)


def _source(paper: Paper, stated: Stated) -> str:
    elsewhere = stated.place.startswith("arXiv ") or "/" in stated.place
    return stated.place if elsewhere else f"arXiv {paper.arxiv}, {stated.place}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _of(advantage: AdvantageName) -> Callable[[Algorithm], bool]:
    """Tell an objective that a paper on advantages is about: its loss is not another paper's subject."""
    return lambda objective: objective.advantage == advantage and objective.loss in ("clip", "policy_gradient")


def _clip(low: float, high: float, place: str) -> dict[str, Stated]:
    return {"algorithm.clip_low": Stated(low, place), "algorithm.clip_high": Stated(high, place)}


def _samples_again(objective: Algorithm) -> bool:
    return objective.dynamic_sampling is not None


_GRPO = _of("grpo")
_CLIP_OF_PPO = "arXiv 1707.06347, section 3, since GRPO's names none"
_BASELINE_SCRIPT = (
    "OpenRLHF/OpenRLHF 4e15f34, examples/scripts/train_reinforce_baseline_llama_ray_agent_async.sh, by the authors"
)

PAPERS = (
    Paper(
        "GRPO",
        "2402.03300",
        lambda objective: _GRPO(objective) and not _samples_again(objective),
        {
            "algorithm.loss": Stated("clip", "equation 3"),
            **_clip(0.2, 0.2, _CLIP_OF_PPO),
            "algorithm.aggregation": Stated("sequence_mean_token_mean", "equation 3"),
            "algorithm.kl.coefficient": Stated(0.04, "section 4.2"),
            "algorithm.kl.estimator": Stated("k3", "equation 4"),
            "algorithm.kl.place": Stated("loss", "equation 3"),
            "optimizer.epochs": Stated(1, "section 4.2"),
            "optimizer.minibatches": Stated(1, "section 4.2"),
        },
    ),
    Paper(
        "DAPO",
        "2503.14476",
        lambda objective: _GRPO(objective) and _samples_again(objective),
        {
            "algorithm.loss": Stated("clip", "equation 8"),
            **_clip(0.2, 0.28, "section 4.1"),
            "algorithm.aggregation": Stated("token_mean", "equation 12"),
            "algorithm.kl.coefficient": Stated(0.0, "section 2.3"),
            "optimizer.minibatches": Stated(16, "section 4.1"),
        },
    ),
    Paper(
        "Dr. GRPO",
        "2503.20783",
        _of("dr_grpo"),
        {
            "rollout.temperature": Stated(1.0, "table 6"),
            "algorithm.loss": Stated("clip", "section 3.2"),
            **_clip(0.2, 0.2, "table 6"),
            "algorithm.aggregation": Stated("sequence_mean_token_sum", "section 3.2"),
            "algorithm.kl.coefficient": Stated(0.0, "table 6"),
            "optimizer.epochs": Stated(1, "table 6"),
        },
    ),
    Paper(
        "RLOO",
        "2402.14740",
        _of("rloo"),
        {
            "algorithm.loss": Stated("policy_gradient", "section 3.2"),
            "algorithm.aggregation": Stated("sequence_mean_token_sum", "section 2.3"),
            "algorithm.kl.coefficient": Stated(0.03, "appendix C: for TL;DR; HH has 0.1"),
            "algorithm.kl.estimator": Stated("k1", "equation 3"),
            "algorithm.kl.place": Stated("reward", "equation 3"),
        },
    ),
    Paper(
        "REINFORCE++",
        "2501.03262",
        _of("reinforce_pp"),
        {
            "algorithm.loss": Stated("clip", "version 2, equation 1"),
            **_clip(0.2, 0.2, "version 2, section 4.2.3"),
            "algorithm.kl.coefficient": Stated(0.001, "version 2, section 4.2.3"),
            "algorithm.kl.estimator": Stated("k1", "version 2, equation 9"),
            "algorithm.kl.place": Stated("reward", "version 2, equation 8"),
        },
    ),
    Paper(
        "REINFORCE++ with a baseline",
        "2501.03262",
        _of("reinforce_pp_baseline"),
        {
            "algorithm.loss": Stated("clip", "version 2, equation 1"),
            **_clip(0.2, 0.2, "version 2, section 4.2.3"),
            "algorithm.kl.estimator": Stated("k2", _BASELINE_SCRIPT),
            "algorithm.kl.place": Stated("loss", _BASELINE_SCRIPT),
        },
    ),
    Paper(
        "PPO",
        "1707.06347",
        _of("gae"),
        {
            "algorithm.loss": Stated("clip", "equation 7"),
            **_clip(0.2, 0.2, "section 3"),
            "algorithm.aggregation": Stated("token_mean", "equation 7"),
            "algorithm.gae.smoothing": Stated(0.95, "table 3"),
            "algorithm.gae.value_clip": Stated(None, "equation 9"),
        },
    ),
    Paper(
        "GSPO",
        "2507.18071",
        lambda objective: objective.loss == "gspo",
        {
            "algorithm.advantage": Stated("grpo", "equation 6"),
            **_clip(3e-4, 4e-4, "section 5.1"),
            "algorithm.aggregation": Stated("sequence_mean_token_mean", "equation 5"),
            "optimizer.minibatches": Stated(4, "section 5.1"),
        },
    ),
    Paper(
        "CISPO",
        "2506.13585",
        lambda objective: objective.loss == "cispo",
        {
            "algorithm.advantage": Stated("grpo", "equation 2"),
            "algorithm.clip_low": Stated(1.0, "section 3.1: no lower bound"),
            "algorithm.aggregation": Stated("token_mean", "equation 4"),
            "algorithm.kl.coefficient": Stated(0.0, "section 3.1"),
        },
    ),
    Paper(
        "SAPO",
        "2511.20347",
        lambda objective: objective.loss == "sapo",
        {
            "algorithm.advantage": Stated("grpo", "equation 2"),
            "algorithm.sapo.temperature_positive": Stated(1.0, "section 5.1"),
            "algorithm.sapo.temperature_negative": Stated(1.05, "section 5.1"),
            "algorithm.aggregation": Stated("sequence_mean_token_mean", "equation 5"),
            "optimizer.minibatches": Stated(4, "section 5.1"),
        },
    ),
    *(
        Paper(
            f"DPPO by {name}",
            "2602.04879",
            lambda objective, divergence=divergence: (
                objective.loss == "dppo" and objective.dppo.divergence == divergence
            ),
            {
                "rollout.temperature": Stated(1.0, "table 1"),
                "algorithm.advantage": Stated("dr_grpo", "appendix C.1"),
                "algorithm.dppo.threshold": Stated(threshold, "appendix C.1"),
                "optimizer.minibatches": Stated(4, "appendix C"),
            },
        )
        for name, divergence, threshold in (("total variation", "tv", 0.15), ("KL", "kl", 0.05))
    ),
    Paper(
        "IcePop",
        "2510.18855",
        lambda objective: objective.correction.reject == "token",
        {
            "algorithm.correction.weight": Stated("token", "section 2.3.2"),
            "algorithm.correction.weight_range": Stated((0.0, 5.0), "section 2.3.4"),
            "algorithm.correction.reject_range": Stated((0.5, 5.0), "section 2.3.4"),
        },
    ),
)
"""At most one of them is about an objective's advantage and loss; IcePop may join it."""
