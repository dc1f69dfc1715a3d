"""One module's optimizer: AdamW with clipping, a schedule, and a limit of skipped steps."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW

from configs import learner as settings
from configs.errors import UserError


class TrainingDiverged(UserError):
    """Too many optimizer steps in a row were skipped."""


class Optimizer:
    """AdamW on the trainable float32 weights of a module, after any sharding of it.

    Args:
        module: what is trained, e.g. the policy.
        of: its settings.
        steps: updates of the whole run, for the schedule.
    """

    def __init__(self, module: nn.Module, of: settings.Optimizer, steps: int) -> None:
        self._weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        self._settings = of
        self._steps = steps
        self._adamw = AdamW(self._weights.values(), betas=of.betas, weight_decay=of.weight_decay)
        self._skipped_in_a_row = torch.tensor(0)
        # AdamW itself would make the same state on its first step; a checkpoint needs tensors to load into.
        for weight in self._weights.values():
            self._adamw.state[weight] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(weight, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(weight, requires_grad=False),
            }

    def step(self, version: int, loss: float, signal: bool = True) -> dict[str, float]:
        """Clip the accumulated gradient to its global norm, take a step, and clear it.

        If the gradient or the loss is not finite, or there is nothing to learn from, the step is not taken: weights and
        moments stay as they are. Otherwise the old moments would move the weights.

        Args:
            version: updates done, which decides the learning rate.
            loss: of the whole optimizer batch; a NaN log-prob gives a NaN loss, but falls out of the clamp's range and
                so may give no NaN gradient.
            signal: False if there is nothing to learn from: the loss has no gradient on any token.

        Returns:
            `grad_norm` before clipping, `learning_rate`, and 0 or 1 for `skipped` (not finite) and `without_signal`.

        Raises:
            TrainingDiverged: if this was the last of `max_skipped` skipped steps in a row.
        """
        norm = get_total_norm([weight.grad for weight in self._weights.values() if weight.grad is not None])
        norm = getattr(norm, "full_tensor", lambda: norm)()
        rate = self._learning_rate(version)
        finite = math.isfinite(loss) and bool(norm.isfinite())
        if finite and signal:
            clip_grads_with_norm_(self._weights.values(), self._settings.max_grad_norm, norm)
            self._adamw.param_groups[0]["lr"] = rate
            self._adamw.step()
        self._adamw.zero_grad()
        if signal or not finite:
            self._count(finite, version)
        return {
            "grad_norm": norm.item(),
            "learning_rate": rate,
            "skipped": float(not finite),
            "without_signal": float(finite and not signal),
        }

    def state(self) -> dict[str, Tensor]:
        """The live tensors by name: trainable weights, AdamW's moments, and the counter of skipped steps."""
        state = {"skipped_in_a_row": self._skipped_in_a_row}
        for name, weight in self._weights.items():
            state[name] = weight.detach()
            state |= {f"{name}.{moment}": value for moment, value in self._adamw.state[weight].items()}
        return state

    def _learning_rate(self, version: int) -> float:
        of = self._settings
        return of.learning_rate * share(
            version,
            schedule=of.schedule,
            warmup_steps=of.warmup_steps,
            steps=self._steps,
            final_share=of.final_share,
        )

    def _count(self, finite: bool, version: int) -> None:
        if finite:
            self._skipped_in_a_row.zero_()
            return
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= self._settings.max_skipped:
            raise TrainingDiverged(
                f"{self._settings.max_skipped} optimizer steps in a row had a loss or gradient that is not finite, the "
                f"last in the update to version {version + 1}. Try a lower learning_rate, a longer warmup_steps, "
                "model.dtype float32, or rollouts whose log-probs are finite (policy/logprob_gap_max)"
            )


SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""From the progress after warm-up, 0 to 1, to a share that falls from 1 to 0, or doesn't fall."""


def share(version: int, *, schedule: str, warmup_steps: int, steps: int, final_share: float) -> float:
    """Share of the learning rate, 0 to 1, at the update that makes version + 1 out of `version`.

    It rises in a straight line to 1 at the last warm-up step. The next update has 1 too. From there it falls, and the
    update after the last one would have `final_share`. Updates beyond `steps` keep that.

    Args:
        version: updates done, from 0.
        schedule: a name of `SHAPES`.
        warmup_steps: updates of the warm-up.
        steps: updates of the whole run.
        final_share: 0 to 1.
    """
    if version < warmup_steps:
        return (version + 1) / warmup_steps
    progress = min(1.0, (version - warmup_steps) / max(1, steps - warmup_steps))
    return final_share + (1.0 - final_share) * SHAPES[schedule](progress)
