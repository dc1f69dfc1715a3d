"""The kinds of hardware that engines and learner run on."""

from collections.abc import Mapping
from typing import Literal

Accelerator = Literal["cpu", "nvidia", "amd"]


def vendor(resources: Mapping[str, float]) -> Accelerator:
    """Tell the vendor of a cluster's accelerators by the types that Ray reports among its resources."""
    if not resources.get("GPU"):
        return "cpu"
    return "amd" if any(key.startswith("accelerator_type:AMD") for key in resources) else "nvidia"
