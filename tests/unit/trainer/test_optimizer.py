from math import inf, nan
from pathlib import Path

import pytest
import torch
from torch import nn

from configs import learner as settings
from trainer.learner.optimizer import Optimizer, TrainingDiverged
from trainer.model import policy


@pytest.fixture
def module() -> nn.Linear:
    layer = nn.Linear(2, 1, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def descent(module: nn.Module, steps: int = 10, **of) -> Optimizer:
    return Optimizer(module, settings.Optimizer(**of), steps)


def step(module: nn.Linear, descent: Optimizer, gradient: list[float], loss: float = 1.0) -> dict[str, float]:
    module.weight.grad = torch.tensor([gradient])
    return descent.step(version=0, loss=loss)


def test_a_thousand_updates_far_below_bfloat16_s_resolution_are_not_lost(policy_dir: Path):
    trained = policy.load(policy_dir, temperature=1.0, dtype="bfloat16")
    norm = trained.model.base_model.get_submodule("norm").get_parameter("weight")
    assert norm.tolist() == [1.0] * 16
    tiny = descent(trained, learning_rate=1e-6)

    for _ in range(1000):
        norm.grad = torch.ones(16)  # AdamW's step is the learning rate wherever the gradient stays the same
        tiny.step(version=0, loss=0.0)

    # 0.9990: in float32 each step is rounded to 17 of its units below 1, 2**-24: 1 - 1000 x 17 x 2**-24 = 0.998987.
    assert norm.tolist() == pytest.approx([0.998987] * 16, abs=1e-6)
    lost = torch.ones(16, dtype=torch.bfloat16)
    for _ in range(1000):
        lost -= 1e-6
    assert lost.tolist() == [1.0] * 16


def test_gradients_are_scaled_down_to_the_global_norm_and_reported_before(module: nn.Linear):
    clipped, free = descent(module, max_grad_norm=1.0), descent(module, max_grad_norm=10.0)

    # The first moment after one step is (1 - 0.9) x gradient; 3, 4 has norm 5, scaled to 1: 0.6, 0.8.
    assert step(module, clipped, [3.0, 4.0])["grad_norm"] == 5.0
    assert clipped.state()["weight.exp_avg"].tolist()[0] == pytest.approx([0.06, 0.08])
    step(module, free, [3.0, 4.0])
    assert free.state()["weight.exp_avg"].tolist()[0] == pytest.approx([0.3, 0.4])


def test_the_gradient_is_cleared_by_each_step(module: nn.Linear):
    step(module, descent(module), [3.0, 4.0])

    assert module.weight.grad is None


@pytest.mark.parametrize(
    ("gradient", "loss"), [([nan, 1.0], 1.0), ([inf, 1.0], 1.0), ([1.0, 1.0], nan), ([1.0, 1.0], -inf)]
)
def test_a_step_that_is_not_finite_is_skipped_and_nothing_changes(
    module: nn.Linear, gradient: list[float], loss: float
):
    skipping = descent(module)
    before = {name: value.clone() for name, value in skipping.state().items()}

    report = step(module, skipping, gradient, loss)

    assert report["skipped"] == 1.0
    after = skipping.state()
    assert all(torch.equal(after[name], value) for name, value in before.items() if name != "skipped_in_a_row")
    assert step(module, skipping, [1.0, 1.0])["skipped"] == 0.0


def test_too_many_skipped_steps_in_a_row_end_with_advice(module: nn.Linear):
    limited = descent(module, max_skipped=3)
    step(module, limited, [nan, 1.0])
    step(module, limited, [nan, 1.0])
    step(module, limited, [1.0, 1.0])  # the count starts anew
    step(module, limited, [nan, 1.0])
    step(module, limited, [nan, 1.0])

    with pytest.raises(TrainingDiverged, match=r"3 optimizer steps in a row.*update to version 1\. Try a lower"):
        step(module, limited, [nan, 1.0])


def test_frozen_weights_have_no_state(module: nn.Linear):
    both = nn.Sequential(module, nn.Linear(1, 1).requires_grad_(False))

    assert set(descent(both).state()) == {
        "skipped_in_a_row",
        "0.weight",
        "0.weight.step",
        "0.weight.exp_avg",
        "0.weight.exp_avg_sq",
    }


def test_the_learning_rate_follows_the_schedule_of_the_whole_run(module: nn.Linear):
    linear = descent(module, learning_rate=2.0, schedule="linear", warmup_steps=1, final_share=0.5, steps=5)

    # Versions 1 to 4 are a quarter of the way down from 2 to 1 each.
    rates = [linear.step(version, loss=0.0)["learning_rate"] for version in range(6)]
    assert rates == [2.0, 2.0, 1.75, 1.5, 1.25, 1.0]
