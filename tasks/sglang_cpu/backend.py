"""Our attention and sampler as SGLang's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.sampler import Sampler
from sglang.srt.sampling.sampling_params import TOP_K_ALL

from tasks.sglang_cpu.attention import Group, attend, group_sequences
from tasks.sglang_cpu.sampling import choose_tokens, uniform

if TYPE_CHECKING:  # SGLang is still importing these when it loads this module
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo


class CpuAttention(TorchNativeAttnBackend):
    """SGLang's attention backend over `attend`; sliding windows and encoders keep SGLang's loop over sequences."""

    def __init__(self, model_runner: ModelRunner) -> None:
        super().__init__(model_runner)
        self.groups: list[Group] = []

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Lay out the step once; all layers share the layout."""
        super().init_forward_metadata(forward_batch)
        assert self.req_to_token_pool
        seq_lens_b = forward_batch.seq_lens
        new_lens_b = forward_batch.extend_seq_lens if forward_batch.forward_mode.is_extend() else None
        self.groups = group_sequences(
            self.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices,
            seq_lens_b,
            torch.ones_like(seq_lens_b) if new_lens_b is None else new_lens_b.to(seq_lens_b.dtype),
        )

    def _run_sdpa_forward_extend(
        self,
        query: torch.Tensor,
        output: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        *rest: Any,
        **how: Any,
    ) -> torch.Tensor:
        if _is_plain(how) and how["causal"]:
            return self._attend(query, output, k_cache, v_cache, how["scaling"])
        return super()._run_sdpa_forward_extend(query, output, k_cache, v_cache, *rest, **how)

    def _run_sdpa_forward_decode(
        self,
        query: torch.Tensor,
        output: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        *rest: Any,
        **how: Any,
    ) -> torch.Tensor:
        if _is_plain(how):
            return self._attend(query, output, k_cache, v_cache, how["scaling"])
        return super()._run_sdpa_forward_decode(query, output, k_cache, v_cache, *rest, **how)

    def _attend(
        self, query: torch.Tensor, output: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, scale: float
    ) -> torch.Tensor:
        for group in self.groups:
            output[group.rows_n] = attend(query[group.rows_n], k_cache, v_cache, group, scale)
        return output


class CpuSampler(Sampler):
    """SGLang's sampler with seeds that work on a CPU, for greedy requests and plain temperature sampling.

    A seeded request with top-k, top-p or min-p goes to SGLang's own code, which can't run without its kernels.
    """

    def _sample_from_probs(
        self,
        probs: torch.Tensor,
        sampling_info: SamplingBatchInfo,
        positions: torch.Tensor,
        simple_sampling_case: bool,
    ) -> tuple[torch.Tensor, Any]:
        greedy_b = sampling_info.top_ks == 1
        whole_vocabulary = bool((greedy_b | (sampling_info.top_ks == TOP_K_ALL)).all())
        cut = sampling_info.need_top_p_sampling or sampling_info.need_min_p_sampling
        if sampling_info.sampling_seed is None or cut or not whole_vocabulary:
            return super()._sample_from_probs(probs, sampling_info, positions, simple_sampling_case)
        sampled_b = choose_tokens(probs, uniform(sampling_info.sampling_seed, positions))
        return torch.where(greedy_b, probs.argmax(dim=-1), sampled_b).to(torch.int32), None


def _is_plain(how: dict[str, Any]) -> bool:
    return not how["is_cross_attn"] and how["sliding_window_size"] is None
