"""The learning rate as a function of the weights version, so that a resumed run can't start it again."""

import math
from collections.abc import Callable

SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""From the progress after warm-up, 0 to 1, to a share that falls from 1 to 0, or doesn't fall."""


def share(version: int, *, schedule: str, warmup_steps: int, steps: int, final_share: float) -> float:
    """Share of the learning rate, 0 to 1, at the update that makes version + 1 out of `version`.

    It rises in a straight line to 1, at the last of the warm-up steps; the update after that has 1 too, and from there
    it falls to `final_share`, which the update after the last one would have. Updates beyond `steps` keep it.

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
