"""Low-rank adaptation: the weights stay, and a small update W + alpha/rank × B A is trained (arXiv 2106.09685)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from configs.errors import UserError
from configs.learner import Lora

ALL_LINEAR = "all-linear"
ADAPTER = "default"
"""peft's name of the only adapter."""


def inject(model: PreTrainedModel, settings: Lora, seed: int) -> None:
    """Put adapters into a model, in place, and freeze everything else. They change nothing yet: B is 0.

    Args:
        model: the causal LM.
        settings: rank, alpha and targets.
        seed: of A's random start; the global generators are left alone.

    Raises:
        UserError: if a target is not there, or is no plain linear layer between embedding and output layer.
    """
    targets = ALL_LINEAR if settings.targets == (ALL_LINEAR,) else _present(model, settings.targets)
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets)  # pyright: ignore[reportArgumentType]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, ADAPTER)


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """Within the block the model computes what it did before `inject`."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    try:
        for layer in layers:
            layer.enable_adapters(False)
            # peft freezes the adapters here too. In FSDP's first pass, FSDP would take them for frozen for ever.
            for weight in (*layer.lora_A.parameters(), *layer.lora_B.parameters()):
                weight.requires_grad_(True)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged(state: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights W + scale × B A under the names that they had before `inject`; nothing is changed in place.

    Args:
        state: all weights of a model with adapters, by name; A [rank, in], B [out, rank], W [out, in].
        scale: alpha / rank.

    Raises:
        ValueError: if there is no adapter, or one without its weight: the names are not those of `inject`.
    """
    updates = {}
    for name, a in state.items():
        layer, is_a, _ = name.partition(f".lora_A.{ADAPTER}.weight")
        if is_a:
            updates[f"{layer}.weight"] = scale * (state[f"{layer}.lora_B.{ADAPTER}.weight"] @ a)
    plain = {name.replace(".base_layer.", "."): value for name, value in state.items() if ".lora_" not in name}
    lost = sorted(updates.keys() - plain.keys())
    if lost or not updates:
        raise ValueError(
            f"{len(updates)} LoRA adapters found, of which {len(lost)} have no weight to be merged into ({lost[:3]}): "
            "the state's names must be those of the model that the adapters were put into"
        )
    return {name: value + updates[name] if name in updates else value for name, value in plain.items()}


def _present(model: PreTrainedModel, targets: tuple[str, ...]) -> list[str]:
    """Return the targets, if each is a linear layer of the model."""
    outside = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    modules = {
        target: [module for name, module in model.named_modules() if f".{name}".endswith(f".{target}")]
        for target in targets
    }
    linear = sorted(
        {
            name.rpartition(".")[2]
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and id(module) not in outside
        }
    )
    for target, found in modules.items():
        if not found or any(not isinstance(module, nn.Linear) or id(module) in outside for module in found):
            raise UserError(
                f"learner.lora.targets has {target!r}, which is not a linear layer between embedding and output layer "
                f"of {type(model).__name__}: take some of {', '.join(linear)}, or {ALL_LINEAR}"
            )
    return list(targets)
