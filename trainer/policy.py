"""The policy: a causal language model that returns log-probs of response tokens."""

from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from trainer import ranks
from trainer.batches import Tokens, collate
from trainer.folders import written_at_once

Dtype = Literal["float32", "bfloat16"]

disable_progress_bar()  # weights are written every step: a bar each time would drown the log


class Policy(nn.Module):
    """A causal LM with float32 weights; its forward pass runs in `dtype`.

    Args:
        model: causal LM in evaluation mode: dropout would make the policy differ from the engine's.
        temperature: logits are divided by it, as the engine does when it samples.
        dtype: number format of matrix products; log-probs are float32 in any case.
    """

    def __init__(self, model: PreTrainedModel, temperature: float, dtype: Dtype) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.dtype = getattr(torch, dtype)

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Log-prob (with gradient) and entropy (without) of each response token: two [B, T] float32, 0 on padding.

        Logits are computed for response tokens only. The token in column c is predicted by the hidden state of
        column c - 1, so the last prompt token scores the first response token.
        """
        device_type = tokens.input_ids.device.type
        with torch.autocast(device_type, self.dtype, enabled=self.dtype != torch.float32):
            # No attention mask: rows are padded on the right, where causal attention never looks.
            hidden = self.model.base_model(input_ids=tokens.input_ids, use_cache=False).last_hidden_state  # [B, L, H]
            row, column = tokens.is_response.nonzero(as_tuple=True)  # [N] each, N response tokens
            head = cast(nn.Module, self.model.get_output_embeddings())
            logits = head(hidden[row, column - 1])  # [N, V]
        logprobs, entropy = score(logits, tokens.input_ids[row, column], self.temperature)
        zeros = logprobs.new_zeros(tokens.response_mask.shape)
        return (
            zeros.masked_scatter(tokens.response_mask, logprobs),
            zeros.masked_scatter(tokens.response_mask, entropy),
        )


def score(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy of each distribution softmax(logits / temperature).

    Args:
        logits: [N, V], any float dtype; converted to float32 before anything else is done.
        targets: [N] int64.
        temperature: > 0.

    Returns:
        Log-probs [N] float32, never above 0, with gradient; entropies [N] float32 in nats, without gradient.
    """
    logits = logits.float() / temperature
    log_normaliser = logits.logsumexp(dim=-1)
    logprobs = logits.gather(-1, targets[:, None]).squeeze(-1) - log_normaliser
    with torch.no_grad():
        probabilities = (logits - log_normaliser[:, None]).exp()
        entropy = log_normaliser - (probabilities * logits).sum(-1)
    return logprobs, entropy


def load(folder: Path, *, temperature: float, dtype: Dtype, device: str = "cpu") -> Policy:
    """Load a policy from a Hugging Face folder and shard it if there are several ranks.

    Raises:
        ValueError: if the architecture changes its logits after the output layer, which `Policy` would miss.
    """
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", use_safetensors=True, local_files_only=True
    )
    policy = Policy(model.eval(), temperature, dtype).to(device)
    _check_output_layer(policy, device)
    if ranks.count() > 1:
        _shard(policy, device)
    return policy


def save(policy: Policy, tokenizer_from: Path, folder: Path) -> None:
    """Write weights (float32 safetensors), config, generation config and tokenizer to `folder`, at once.

    All ranks must call it; rank 0 writes, and all return when the folder is there.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(policy.model, options=options)
    if ranks.own() == 0:
        # Gathered tied tensors no longer share memory, so it has to be said which ones are copies.
        tied = policy.model.all_tied_weights_keys
        with written_at_once(folder) as temporary:
            policy.model.save_pretrained(
                temporary, state_dict={name: value for name, value in state.items() if name not in tied}
            )
            AutoTokenizer.from_pretrained(tokenizer_from, local_files_only=True).save_pretrained(temporary)
    ranks.wait_for_all()


def _shard(policy: Policy, device: str) -> None:
    mesh = init_device_mesh(torch.device(device).type, (ranks.count(),))
    blocks = policy.model._no_split_modules or []
    for module in policy.model.modules():
        if type(module).__name__ in blocks:
            fully_shard(module, mesh=mesh)
    fully_shard(policy, mesh=mesh)


@torch.no_grad()
def _check_output_layer(policy: Policy, device: str) -> None:
    tokens = collate([([0], [1, 2, 3])], device)
    logits = policy.model(input_ids=tokens.input_ids, use_cache=False).logits[0, :-1]
    expected, _ = score(logits, tokens.input_ids[0, 1:], policy.temperature)
    if policy.dtype == torch.float32 and not torch.allclose(policy(tokens)[0][0], expected, atol=1e-3):
        raise ValueError(
            f"{type(policy.model).__name__} changes its logits after the output layer (as soft-capping does), "
            "which the learner does not support; choose another architecture"
        )
