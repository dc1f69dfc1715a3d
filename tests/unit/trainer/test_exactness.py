"""Every algorithm has the loss and the gradient of its formula on one padded batch with all logits, in float64.

On one side is the learner's way: advantages of the whole step, then micro-batches of any number and order, packed, a
prompt computed once for all responses that share it. On the other side is the same objective on rows that are padded
on the right, in one piece.
"""

import copy
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen3ForCausalLM

from configs.algorithm import AdvantageName, AggregationName, Algorithm, Correction, Kl, LossName
from tests.unit.trainer.tiny import tiny_config
from trainer.algorithm.aggregate import AGGREGATIONS, normaliser
from trainer.algorithm.batch import Batch, estimate_advantages
from trainer.algorithm.critic import value_objective
from trainer.algorithm.losses import LOSSES
from trainer.algorithm.objective import Inputs, policy_objective
from trainer.batches.packing import PromptResponse
from trainer.learner.gradients import Experience, accumulate, critic_objectives, policy_objectives
from trainer.model.critic import Critic
from trainer.model.policy import Policy

VOCABULARY, TEMPERATURE, LONGEST = 20, 0.8, 5
PROMPTS = [[1, 2, 3, 4], [5, 6], [7, 8, 9, 10, 11, 12]]
RESPONSES = [[13, 14, 15, 16, 17], [18], [19, 1], [2, 3, 4]]
SEQUENCES: list[PromptResponse] = list(product(PROMPTS, RESPONSES))
GROUPS = torch.arange(len(PROMPTS)).repeat_interleave(len(RESPONSES))
MASK = torch.arange(LONGEST) < torch.tensor([len(response) for _, response in SEQUENCES])[:, None]
SPLITS = {"order": st.permutations(range(len(SEQUENCES))), "parts": st.integers(1, len(SEQUENCES))}

ALGORITHMS = {
    **{
        f"{loss}, {aggregation}": Algorithm(
            loss=loss,
            advantage="accepted" if loss == "sft" else "grpo",
            aggregation=aggregation,
            old_policy="behaviour" if loss == "dppo" else "learner",
            kl=Kl(coefficient=0.1, unbiased_gradient=True),
            correction=Correction(
                weight="none" if loss == "dppo" else "token", reject="geometric", reject_range=(0.3, 3)
            ),
        )
        for loss, aggregation in product(sorted(LOSSES), sorted(AGGREGATIONS))
    },
    **{
        advantage: Algorithm(advantage=advantage, teacher="big" if advantage == "distillation" else None)
        for advantage in get_args(AdvantageName)
    },
    "kl in the reward": Algorithm(
        advantage="reinforce_pp", kl=Kl(coefficient=0.1, estimator="k1", place="reward"), loss="policy_gradient"
    ),
}


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padded_logprobs(model: nn.Module) -> Tensor:
    """Log-probs of the response tokens, [N, T], out of the logits of all tokens of padded rows."""
    rows = [torch.tensor(prompt + response) for prompt, response in SEQUENCES]
    ids = pad_sequence(rows, batch_first=True)
    columns = torch.arange(ids.shape[1])
    seen = (columns < torch.tensor([len(row) for row in rows])[:, None]).long()
    logits = model(input_ids=ids, attention_mask=seen).logits[:, :-1] / TEMPERATURE
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    starts = [len(prompt) - 1 for prompt, _ in SEQUENCES]
    return pad_sequence(
        [
            row[start : start + len(response)]
            for row, start, (_, response) in zip(logprobs, starts, SEQUENCES, strict=True)
        ],
        batch_first=True,
    )


def gradient_of(model: nn.Module) -> Tensor:
    found = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    model.zero_grad()
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(tiny_config(VOCABULARY, tied=False)).double().eval()


@pytest.fixture(scope="module")
def policy(model: Any) -> Policy:
    return Policy(copy.deepcopy(model), TEMPERATURE, "float32")


@pytest.fixture(scope="module")
def critic(model: Any) -> Critic:
    made = Critic(Policy(copy.deepcopy(model), 1.0, "float32"))
    made.head.float()  # what it is given is made float32, whatever the backbone
    with torch.no_grad():
        made.head.weight.copy_(noise(9, *made.head.weight.shape))
    return made


def batch_of(logprobs: Tensor, algorithm: Algorithm) -> tuple[Tensor, Batch]:
    """Behaviour log-probs and a batch with everything that an algorithm can ask for, near the policy's log-probs."""
    near = [torch.where(MASK, logprobs + 0.3 * noise(seed, *MASK.shape), 0.0) for seed in range(4)]
    rewards = (noise(5, len(SEQUENCES)) > 0).double()
    return near[0], Batch(
        rewards=rewards,
        accuracies=rewards,
        groups=GROUPS,
        truncated=torch.zeros(len(SEQUENCES), dtype=torch.bool),
        lags=torch.zeros(len(SEQUENCES), dtype=torch.long),
        mask=MASK,
        old_logprobs=near[1] if algorithm.needs_old else near[0],
        reference_logprobs=near[2],
        teacher_logprobs=near[3],
        values=torch.where(MASK, noise(6, *MASK.shape), 0.0),
    )


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=3)
@given(**SPLITS)
def test_loss_and_gradient_are_those_of_the_padded_batch_under_any_split_order_and_packing(
    name: str, order: list[int], parts: int, model: Any, policy: Policy
):
    algorithm = ALGORITHMS[name]
    logprobs = padded_logprobs(model)
    behaviour, batch = batch_of(logprobs.detach(), algorithm)
    worth = estimate_advantages(batch, algorithm)
    counts = normaliser(worth.mask, LONGEST)
    inputs = Inputs(
        policy_logprobs=logprobs,
        behaviour_logprobs=behaviour,
        old_logprobs=batch.old_logprobs,
        entropy=torch.zeros_like(logprobs),
        advantages=worth.advantages,
        mask=worth.mask,
        reference_logprobs=batch.reference_logprobs,
    )
    expected = policy_objective(inputs, counts, algorithm).loss
    expected.backward()
    expected_gradient = gradient_of(model)

    experience = Experience(SEQUENCES, behaviour, batch, worth)
    split = [order[start::parts] for start in range(parts)]
    means, _ = accumulate(policy_objectives(policy, experience, split, counts, algorithm, "cpu"), "cpu")

    assert means["loss"] == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)
    assert expected_gradient.norm() > 1e-4
    assert (gradient_of(policy.model) - expected_gradient).norm() / expected_gradient.norm() < 1e-6


@settings(max_examples=3)
@given(**SPLITS)
def test_the_critics_gradient_is_the_same_under_any_split_order_and_packing(
    order: list[int], parts: int, model: Any, critic: Critic
):
    algorithm = Algorithm(advantage="gae")
    behaviour, batch = batch_of(padded_logprobs(model).detach(), algorithm)
    experience = Experience(SEQUENCES, behaviour, batch, estimate_advantages(batch, algorithm))

    def gradient(split: list[list[int]]) -> Tensor:
        accumulate(critic_objectives(critic, experience, split, normaliser(MASK, LONGEST), 0.2, "cpu"), "cpu")
        return gradient_of(critic)

    alone = gradient([[row] for row in range(len(SEQUENCES))])  # each sequence for itself, without a shared prompt
    split = gradient([order[start::parts] for start in range(parts)])

    assert (split - alone).norm() / alone.norm() < 1e-6


@pytest.mark.parametrize("advantage", get_args(AdvantageName))
@settings(max_examples=10)
@given(order=st.permutations(range(len(SEQUENCES))), names=st.permutations(range(len(PROMPTS))))
def test_no_advantage_goes_by_the_order_of_samples_or_by_the_names_of_groups(
    advantage: AdvantageName, order: list[int], names: list[int]
):
    algorithm = ALGORITHMS[advantage]
    _, batch = batch_of(torch.full(MASK.shape, -2.0, dtype=torch.float64), algorithm)
    tensors = {name: value[order] for name, value in vars(batch).items()}
    mixed = Batch(**tensors | {"groups": torch.tensor(names)[batch.groups[order]]})

    expected, actual = estimate_advantages(batch, algorithm), estimate_advantages(mixed, algorithm)

    torch.testing.assert_close(actual.advantages, expected.advantages[order], rtol=1e-6, atol=1e-7)
    assert torch.equal(actual.mask, expected.mask[order])


KLS = {
    "none": Kl(),
    "k1, unbiased": Kl(coefficient=0.5, estimator="k1", unbiased_gradient=True),
    "k2": Kl(coefficient=0.5, estimator="k2"),
    "k3": Kl(coefficient=0.5, estimator="k3"),
    "k3, unbiased": Kl(coefficient=0.5, estimator="k3", unbiased_gradient=True),
}


DIFFERENTIATED = [
    *((loss, "token_mean", "none") for loss in sorted(set(LOSSES) - {"cispo"})),
    *(("clip", aggregation, kl) for aggregation in sorted(AGGREGATIONS) for kl in KLS),
]


@pytest.mark.parametrize(("loss", "aggregation", "kl"), DIFFERENTIATED)
def test_the_whole_objective_agrees_with_finite_differences(loss: LossName, aggregation: AggregationName, kl: str):
    """CISPO's weight is a constant by definition, which finite differences can't know: see test_losses."""
    algorithm = ALGORITHMS[f"{loss}, {aggregation}"].model_copy(update={"kl": KLS[kl]})
    behaviour, batch = batch_of(torch.full(MASK.shape, -2.0, dtype=torch.float64), algorithm)
    zeros = torch.zeros_like(behaviour)
    advantages = noise(7, *MASK.shape)
    fixed = Inputs(zeros, behaviour, batch.old_logprobs, zeros, advantages, MASK, batch.reference_logprobs)

    def objective(logprobs: Tensor) -> Tensor:
        inputs = replace(fixed, policy_logprobs=logprobs)
        return policy_objective(inputs, normaliser(MASK, LONGEST), algorithm).loss

    policy = (batch.old_logprobs + 0.4 * noise(8, *MASK.shape)).requires_grad_()
    assert torch.autograd.gradcheck(objective, (policy,), atol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_critics_loss_agrees_with_finite_differences(clip: float | None):
    old, returns = noise(1, *MASK.shape), noise(2, *MASK.shape)

    def objective(values: Tensor) -> Tensor:
        return value_objective(values, old, returns, MASK, normaliser(MASK, LONGEST), clip).loss

    assert torch.autograd.gradcheck(objective, ((old + 0.3 * noise(3, *MASK.shape)).requires_grad_(),), atol=1e-6)
