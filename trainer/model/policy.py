"""The policy: a causal language model that returns log-probs of response tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from configs.errors import UserError
from configs.learner import Lora
from trainer import distributed
from trainer.batches import attention
from trainer.batches.collation import Tokens, collate
from trainer.files import written_at_once
from trainer.model import lora
from trainer.model.scoring import score, score_in_chunks
from trainer.model.tokens import GENERATION, TOKENIZER, ModelTokens, copy_tokenizer, tokens_of

Dtype = Literal["float32", "bfloat16"]

TOLERANCE = 1e-3
"""Largest difference of log-probs between the packed and the model's own forward pass, in float32 on any device."""
SHOWN = 3
"""Names of each kind in an error about weights."""


class Policy(nn.Module):
    """A causal LM with float32 weights; its forward pass runs in `dtype`.

    Args:
        model: causal LM in evaluation mode: dropout would make the policy differ from the engine's. From here on it
            understands packed rows only.
        temperature: logits are divided by it, as the engine does when it samples.
        dtype: number format of matrix products. Log-probs are always float32, except for a `model` in float64, which
            `float32` leaves as it is.
        tokens: what of its output layer are tokens; None means all rows of it.
    """

    _unused: Tensor | None

    def __init__(
        self, model: PreTrainedModel, temperature: float, dtype: Dtype, tokens: ModelTokens | None = None
    ) -> None:
        super().__init__()
        disable_progress_bar()  # Weights are written every step: a bar each time would drown the log.
        model.set_attn_implementation(attention.NAME)
        self.model = model
        self.temperature = temperature
        self.dtype = getattr(torch, dtype)
        head = cast(nn.Module, model.get_output_embeddings())
        unused = tokens.unused(head.get_parameter("weight").shape[0]) if tokens else []
        self.register_buffer("_unused", torch.tensor(unused) if unused else None, persistent=False)

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Log-prob (with gradient) and entropy (without) of each response token: two [B, T] float32, 0 on padding."""
        head = cast(nn.Module, self.model.get_output_embeddings())
        with self._autocast(tokens):
            logprobs, entropies = score_in_chunks(
                head, self.hidden_states(tokens), tokens.targets, self.temperature, self._unused
            )
        return tokens.to_rows(logprobs), tokens.to_rows(entropies)

    def hidden_states(self, tokens: Tokens) -> Tensor:
        """The last layer's states that predict the response tokens [N, H]: those of the tokens before them.

        So the last prompt token scores the first response token.
        """
        with self._autocast(tokens):
            output = self.model.base_model(
                input_ids=tokens.input_ids[None],
                position_ids=tokens.position_ids[None],
                packing=tokens.packing,
                use_cache=False,
            )
        return output.last_hidden_state[0].index_select(0, tokens.predictors)

    def _autocast(self, tokens: Tokens) -> torch.autocast:
        return torch.autocast(tokens.input_ids.device.type, self.dtype, enabled=self.dtype != torch.float32)


def load(
    folder: Path, *, temperature: float, dtype: Dtype, device: str = "cpu", tokens: ModelTokens | None = None
) -> Policy:
    """Load a policy, not sharded yet, from a Hugging Face folder.

    Args:
        folder: of the model, with its tokenizer.
        temperature: see `Policy`.
        dtype: see `Policy`.
        device: `cpu` or `cuda`.
        tokens: what of its output layer are tokens; None means those of its own tokenizer, or all rows if the folder
            has none. A teacher takes the student's, so that both are distributions over the same tokens.

    Raises:
        UserError: if the files' tensors are not exactly the model's, if the architecture computes something else for
            packed sequences than for each alone, or if its tokenizer can't be read.
    """
    model = cast(PreTrainedModel, nn.Module.to(_read_model(folder).eval(), device))
    _check_architecture(model)
    if tokens is None and (folder / TOKENIZER).is_file():
        tokens = tokens_of(folder)
    return Policy(model, temperature, dtype, tokens).to(device)


def save(policy: Policy, tokenizer_from: Path, folder: Path, adapters: Lora | None = None) -> None:
    """Write weights (float32 safetensors), config, generation config and tokenizer to `folder`, atomically.

    Tokenizer and generation config are copied from `tokenizer_from` as they are: transformers would write a tokenizer
    that it read wrongly, and refuses to write some generation configs. Adapters are merged into the written weights.
    All ranks must call it: rank 0 writes, and all return when the folder is there.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(policy.model, options=options)
    if distributed.rank() == 0:
        # Gathered tied tensors no longer share memory, so it has to be said which ones are copies.
        tied = policy.model.all_tied_weights_keys
        if adapters:
            state = lora.merged(cast(dict[str, Tensor], state), adapters.alpha / adapters.rank)
        with written_at_once(folder) as temporary:
            policy.model.generation_config = GenerationConfig()
            policy.model.save_pretrained(
                temporary, state_dict={name: value for name, value in state.items() if name not in tied}
            )
            (temporary / GENERATION).unlink()
            copy_tokenizer(tokenizer_from, temporary)
    distributed.barrier()


def _read_model(folder: Path) -> PreTrainedModel:
    """Load a model, with each of its weights from the folder: transformers fills in random ones where some lack."""
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told of below, all at once
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise UserError(f"the weights in {folder} can't be read: {error}") from error
    model, found = loaded
    wrong = {
        "missing": sorted(found["missing_keys"] - {name for name, *_ in found["mismatched_keys"]}),
        "of another shape": sorted(name for name, *_ in found["mismatched_keys"]),
        "of no place in it": sorted(found["unexpected_keys"]),
    }
    if any(wrong.values()):
        told = "; ".join(f"{len(names)} {what} ({_some(names)})" for what, names in wrong.items() if names)
        raise UserError(
            f"the weights in {folder} don't fit its config.json, a {type(model).__name__}: {told}. Give the model as "
            "its own save_pretrained writes it"
        )
    return model


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


@torch.no_grad()
def _check_architecture(model: PreTrainedModel) -> None:
    """Compare the packed forward pass with the model's own, on three short sequences.

    The layers' types are checked too: short sequences don't show what a layer does to long ones.
    """
    name = type(model).__name__
    strange = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if strange:
        raise UserError(
            f"{name} has layers of type {', '.join(sorted(strange))}, which mix packed sequences with each other; "
            "the learner supports full and sliding-window attention: choose another architecture"
        )
    model.set_attn_implementation("eager")  # the one that every architecture has
    sequences = [([0, 1, 2], [3, 1]), ([0, 1, 2], [2, 0, 3]), ([1, 0], [2, 2])]
    expected = []  # log-probs of each sequence by the model's own forward pass
    for prompt, response in sequences:
        ids = torch.tensor([prompt + response], device=model.device)
        states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        output_layer = cast(nn.Module, model.get_output_embeddings())
        if not torch.allclose(output_layer(states)[0, len(prompt) - 1 : -1], logits, atol=TOLERANCE):
            raise UserError(
                f"{name} changes its logits after the output layer (as soft-capping does), "
                "which the learner does not support; choose another architecture"
            )
        expected.append(score(logits, ids[0, len(prompt) :], temperature=1.0)[0])
    tokens = collate(sequences, str(model.device))
    packed_policy = Policy(model, temperature=1.0, dtype="float32")
    if model.config._attn_implementation != attention.NAME:
        raise UserError(
            f"{name} has an attention of its own and takes none of transformers' attention functions, so sequences "
            "can't be packed; choose another architecture"
        )
    packed, _ = packed_policy(tokens)
    if not torch.allclose(packed[tokens.response_mask], torch.cat(expected), atol=TOLERANCE):
        raise UserError(
            f"{name} can't be packed: it does not compute each of several sequences in a row as if it were alone, "
            "as recurrent layers don't; choose another architecture"
        )
