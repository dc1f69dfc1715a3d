"""TRL computes loss and gradients for the same tiny model and batch; ours must agree.

TRL is used as it is: a GRPOTrainer's own `_compute_loss`, in one process, with one accumulation step.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer, Qwen3ForCausalLM

from configs.algorithm import Algorithm, Correction, Kl
from tests.unit.trainer.tiny import tiny_config
from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.objective import Inputs, policy_objective

VOCABULARY = 40
PROMPT, RESPONSE = 4, 6
MAX_RESPONSE_TOKENS = 8
BETA = 0.5
PROMPT_LENGTHS = torch.tensor([4, 4, 2, 2])
RESPONSE_LENGTHS = torch.tensor([6, 3, 1, 5])
TOOL_TOKEN = (0, 2)  # row and column of a token that a tool wrote


def tiny_model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(tiny_config(VOCABULARY, tied=False)).eval()


@pytest.fixture(scope="module")
def batch() -> dict[str, Tensor]:
    """What TRL's `_compute_loss` reads: left-padded prompts, right-padded completions, log-probs and advantages."""
    generator = torch.Generator().manual_seed(1)
    rows = len(PROMPT_LENGTHS)
    completion_mask = (torch.arange(RESPONSE) < RESPONSE_LENGTHS[:, None]).long()
    tool_mask = torch.ones_like(completion_mask)
    tool_mask[TOOL_TOKEN] = 0
    logprobs = naive_logprobs(tiny_model(), ids := random_ids(generator, rows), completion_mask).detach()
    noise = torch.randn(2, rows, RESPONSE, generator=generator)
    return {
        "prompt_ids": ids["prompt_ids"],
        "prompt_mask": ids["prompt_mask"],
        "completion_ids": ids["completion_ids"],
        "completion_mask": completion_mask,
        "tool_mask": tool_mask,
        # Far enough from the policy for some tokens to be clipped on either side.
        "old_per_token_logps": logprobs + 0.3 * noise[0],
        "ref_per_token_logps": logprobs + 0.3 * noise[1],
        "advantages": torch.tensor([-1.2, -0.4, 1.0, 0.7]),
        "num_items_in_batch": (completion_mask * tool_mask).sum(),
    }


def random_ids(generator: torch.Generator, rows: int) -> dict[str, Tensor]:
    return {
        "prompt_ids": torch.randint(VOCABULARY, (rows, PROMPT), generator=generator),
        "prompt_mask": (torch.arange(PROMPT) >= PROMPT - PROMPT_LENGTHS[:, None]).long(),
        "completion_ids": torch.randint(VOCABULARY, (rows, RESPONSE), generator=generator),
    }


def naive_logprobs(model: Qwen3ForCausalLM, ids: dict[str, Tensor], completion_mask: Tensor) -> Tensor:
    """Log-probs of completion tokens, [B, T], from full logits."""
    tokens = torch.cat([ids["prompt_ids"], ids["completion_ids"]], dim=1)
    mask = torch.cat([ids["prompt_mask"], completion_mask], dim=1)
    logits = model(input_ids=tokens, attention_mask=mask).logits[:, PROMPT - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, ids["completion_ids"][..., None]).squeeze(-1)


def gradients(model: Qwen3ForCausalLM, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.fixture(scope="module")
def trl_loss(policy_dir: Path, tmp_path_factory: pytest.TempPathFactory, batch: dict[str, Tensor]) -> Iterator[Any]:
    """A function from TRL's settings to (loss, gradients)."""
    # Imported here, since it takes seconds that no other test needs.
    import datasets

    trl: Any = import_module("trl")  # its types don't tell that a trainer's model is the one that it was given
    tokenizer = AutoTokenizer.from_pretrained(policy_dir)

    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)

    def compute(**settings: Any) -> tuple[float, dict[str, Tensor]]:
        config = trl.GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            per_device_train_batch_size=4,
            num_generations=4,
            gradient_accumulation_steps=1,
            max_completion_length=MAX_RESPONSE_TOKENS,
            beta=BETA,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            **{"use_bias_correction_kl": False, **settings},
        )
        trainer = trl.GRPOTrainer(
            # TRL loads its reference from where the model came from.
            model=Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["a"] * 4}),
            processing_class=tokenizer,
        )
        trainer.current_gradient_accumulation_steps = 1
        model = trainer.model.train()
        loss = trainer._compute_loss(model, batch)
        return loss.item(), gradients(model, loss)

    yield compute


def our_loss(batch: dict[str, Tensor], algorithm: Algorithm) -> tuple[float, dict[str, Tensor]]:
    model = tiny_model()
    logprobs = naive_logprobs(model, batch, batch["completion_mask"])
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    inputs = Inputs(
        policy_logprobs=logprobs,
        behaviour_logprobs=batch["old_per_token_logps"],
        old_logprobs=batch["old_per_token_logps"],
        entropy=torch.zeros_like(logprobs),
        advantages=batch["advantages"][:, None].expand_as(logprobs),
        mask=mask,
        reference_logprobs=batch["ref_per_token_logps"],
    )
    loss = policy_objective(inputs, normaliser(mask, MAX_RESPONSE_TOKENS), algorithm).loss
    return loss.item(), gradients(model, loss)


KL = Kl(coefficient=BETA)
SETTINGS = {
    "grpo": (
        {"loss_type": "grpo", "epsilon": 0.2, "epsilon_high": 0.2},
        Algorithm(aggregation="sequence_mean_token_mean", clip_high=0.2, kl=KL),
    ),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "epsilon": 0.2, "epsilon_high": 0.2},
        Algorithm(advantage="dr_grpo", aggregation="sequence_mean_token_sum", clip_high=0.2, kl=KL),
    ),
    "dapo": ({"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28}, Algorithm(kl=KL)),
    "dapo with dual clip": (
        # TRL clips the ratio at delta: for a negative advantage that is a loss of at most delta |A|.
        {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "delta": 1.3},
        Algorithm(dual_clip=1.3, kl=KL),
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.08},
        Algorithm(loss="gspo", aggregation="sequence_mean_token_mean", clip_low=0.05, clip_high=0.08, kl=KL),
    ),
    "cispo": (
        # TRL's bound is on the weight itself, and it has no lower one: 1 + clip_high and clip_low 1.
        {"loss_type": "cispo", "epsilon_high": 1.2},
        Algorithm(loss="cispo", clip_low=1.0, clip_high=0.2, kl=KL),
    ),
    "sapo": ({"loss_type": "sapo"}, Algorithm(loss="sapo", aggregation="sequence_mean_token_mean", kl=KL)),
    "off-policy sequence masking": (
        {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "off_policy_mask_threshold": 0.05},
        Algorithm(kl=KL, correction=Correction(off_policy_limit=0.05)),
    ),
    "unbiased kl": (
        {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "use_bias_correction_kl": True},
        Algorithm(kl=Kl(coefficient=BETA, unbiased_gradient=True)),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_loss_and_gradients_agree(name: str, trl_loss: Any, batch: dict[str, Tensor]):
    theirs, ours = SETTINGS[name]

    their_loss, their_gradients = trl_loss(**theirs)
    our_value, our_gradients = our_loss(batch, ours)

    assert our_value == pytest.approx(their_loss, abs=1e-5)
    assert our_gradients.keys() == their_gradients.keys()
    for parameter, gradient in our_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[parameter], atol=1e-5, rtol=1e-4)


def test_the_batch_tells_the_settings_apart(batch: dict[str, Tensor]):
    """Every pair of settings gives another loss: agreement is not for want of clipping or of unequal lengths."""
    losses = [our_loss(batch, ours)[0] for _, ours in SETTINGS.values()]

    assert min(abs(a - b) for i, a in enumerate(losses) for b in losses[:i]) > 1e-4
