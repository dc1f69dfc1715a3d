from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema import Recipe


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"optimizer": {"final_share": 0.1}}, "a constant schedule falls to nothing"),
        ({"optimizer": {"schedule": "linear", "warmup_steps": 60}}, r"warmup_steps \(60\) leaves no step of 60"),
        (
            {"algorithm": {"advantage": "gae"}, "critic": {"schedule": "cosine", "warmup_steps": 61}},
            r"critic\.warmup_steps \(61\) leaves no step",
        ),
        ({"optimizer": {"minibatches": 17}}, r"minibatches \(17\) is larger than rollout.prompts_per_step \(16\)"),
        ({"critic": {"learning_rate": 1e-5}}, "critic has no effect with advantage grpo"),
        ({"optimizer": {"epochs": 0}}, "epochs"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "betas"),
        ({"optimizer": {"schedule": "step"}}, "'constant', 'linear' or 'cosine'"),
        ({"optimizer": {"max_skipped": 0}}, "max_skipped"),
        ({"learner": {"lora": {"rank": 0}}}, "rank"),
        ({"learner": {"lora": {"alpha": 0}}}, "alpha"),
        ({"learner": {"lora": {"targets": []}}}, "targets"),
    ],
)
def test_settings_that_can_not_work_are_refused_with_the_reason(sections: dict[str, Any], reason: str):
    with pytest.raises(ValidationError, match=reason):
        Recipe(name="test", **sections)


@pytest.mark.parametrize(
    "sections",
    [
        {"steps": 2, "optimizer": {"warmup_steps": 5}},  # a run that is cut short on purpose
        {"optimizer": {"schedule": "cosine", "warmup_steps": 59, "final_share": 0.1, "minibatches": 16, "epochs": 4}},
        {"algorithm": {"advantage": "gae"}, "critic": {"learning_rate": 1e-5}},
        {"learner": {"lora": {"targets": ["q_proj", "v_proj"]}, "gradient_checkpointing": True, "ranks": 2}},
    ],
)
def test_settings_that_fit_together_are_taken(sections: dict[str, Any]):
    Recipe(name="test", **sections)
