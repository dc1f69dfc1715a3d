"""Sharding and gradient checkpointing of a model, one decoder layer at a time."""

from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from trainer import distributed


def decoder_layers(module: nn.Module) -> list[nn.Module]:
    """The decoder layers within a module, by the class names that its architecture gives."""
    models = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    names = {name for model in models for name in model._no_split_modules or ()}
    return [part for part in module.modules() if type(part).__name__ in names]


def recompute(module: nn.Module) -> None:
    """Gradient checkpointing: keep a layer's input only, and compute the layer again in the backward pass.

    transformers' own way works in training mode only, which would turn dropout on. Call this before `shard`, which then
    gathers a layer's weights before both passes.
    """
    for layer in decoder_layers(module):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


def shard(module: nn.Module, device: str, replicas: int = 1) -> None:
    """Shard weights and gradients over the ranks (FSDP2), if there are several. The forward pass must call `module`.

    Args:
        module: its weights are sharded in place.
        device: that of the module.
        replicas: copies of the weights, each over ranks / replicas neighbouring ranks; gradients are averaged over all.
    """
    if distributed.world_size() > 1:
        shape = (distributed.world_size(),) if replicas == 1 else (replicas, distributed.world_size() // replicas)
        mesh = init_device_mesh(torch.device(device).type, shape, mesh_dim_names=("replica", "shard")[-len(shape) :])
        for layer in decoder_layers(module):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
