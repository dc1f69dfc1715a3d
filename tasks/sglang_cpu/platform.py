"""SGLang on a plain CPU: a platform of our own, through SGLang's entry-point group `sglang.srt.platforms`.

SGLang's own CPU engine needs compiled kernels that no package registry carries. This platform runs on PyTorch alone.
"""

import os

import torch
from sglang.srt.arg_groups import choices
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform

from tasks.server.launch import CPU_BACKEND


def activate() -> str | None:
    """Offer the platform to SGLang.

    Returns:
        The name of the platform's class, or None where an accelerator or SGLang's own CPU engine is to be used.
    """
    if torch.accelerator.is_available() or os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
        return None
    choices.add_attention_backend_choices([CPU_BACKEND])
    choices.add_deterministic_attention_backend_choices([CPU_BACKEND])
    choices.add_radix_supported_deterministic_attention_backend_choices([CPU_BACKEND])
    return f"{__name__}.CpuPlatform"


class CpuPlatform(CpuDeviceMixin, SRTPlatform):  # pyright: ignore[reportIncompatibleMethodOverride]  # SGLang's own
    """PyTorch's own operators on a CPU, with our attention, sampler and batch-invariant mode."""

    _enum = PlatformEnum.OOT

    def get_default_attention_backend(self) -> str:
        """Return the name under which our attention is registered."""
        return CPU_BACKEND

    def is_pin_memory_available(self, device: object = None) -> bool:
        """Pinned memory has no use without an accelerator."""
        return False

    def init_backend(self) -> None:
        """Register our parts. SGLang calls this once in each process that runs the model."""
        # SGLang imports the platform before these modules can be imported.
        from sglang.srt import batch_invariant_ops
        from sglang.srt.layers.attention.attention_registry import register_attention_backend
        from sglang.srt.layers.sampler import register_sampler_backend

        from tasks.sglang_cpu.backend import CpuAttention, CpuSampler
        from tasks.sglang_cpu.batch_invariant import enable

        register_attention_backend(CPU_BACKEND)(CpuAttention)
        register_sampler_backend("pytorch", CpuSampler)
        # SGLang's own mode is made of Triton kernels, which need an accelerator.
        batch_invariant_ops.enable_batch_invariant_mode = enable
